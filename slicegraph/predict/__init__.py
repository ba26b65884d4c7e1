"""Prediction: a trained model, tables of molecules, several processes."""

from slicegraph.predict.predictor import MoleculePredictor, Predictions, load_predictor

__all__ = ["MoleculePredictor", "Predictions", "load_predictor"]
