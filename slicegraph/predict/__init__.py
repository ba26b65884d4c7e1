"""Prediction: a trained model, tables of molecules, several processes."""

from slicegraph.extras import needs

with needs(__name__, "mol"):
    from slicegraph.predict.batches import BatchPredictor
    from slicegraph.predict.explain import Explanation, Explanations
    from slicegraph.predict.predictor import MoleculePredictor, Predictions, load_predictor

__all__ = [
    "BatchPredictor",
    "Explanation",
    "Explanations",
    "MoleculePredictor",
    "Predictions",
    "load_predictor",
]
