"""The scores that a page shows beside the metric of the run, from labels and predictions."""

import numpy as np


def regression_scores(true: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    """Mean absolute error, root mean squared error and the share of the variance explained.

    Args:
        true: ``[n]``, the labels.
        predicted: ``[n]``, the predictions.

    Returns:
        "MAE", "RMSE" and, where the labels vary, "R²" = 1 - sum of squared errors / sum of squared
        deviations of the labels from their mean.
    """
    error = predicted - true
    scores = {
        "MAE": float(np.abs(error).mean()),
        "RMSE": float(np.sqrt(np.square(error).mean())),
    }
    spread = float(np.square(true - true.mean()).sum())
    if spread > 0:
        scores["R²"] = 1 - float(np.square(error).sum()) / spread
    return scores


def binary_scores(true: np.ndarray, score: np.ndarray) -> dict[str, float]:
    """Area under the ROC curve, average precision, accuracy at one half.

    Args:
        true: ``[n]``, labels 0 and 1.
        score: ``[n]``, the probability of class 1.

    Returns:
        "ROC-AUC" and "AP", where both classes occur, and "accuracy".
    """
    scores = {}
    if 0 < true.sum() < len(true):
        false_rate, true_rate = roc_curve(true, score)
        heights = (true_rate[1:] + true_rate[:-1]) / 2
        scores["ROC-AUC"] = float((np.diff(false_rate) * heights).sum())
        scores["AP"] = _average_precision(true, score)
    scores["accuracy"] = float(((score >= 0.5) == (true == 1)).mean())
    return scores


def class_scores(true: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    """The share of the molecules whose class is right."""
    return {"accuracy": float((true == predicted).mean())}


def roc_curve(true: np.ndarray, score: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """False and true positive rates at every threshold, from (0, 0) to (1, 1)."""
    hits, alarms = _counts(true, score)
    return np.append(0, alarms / alarms[-1]), np.append(0, hits / hits[-1])


def confusion_matrix(true: np.ndarray, predicted: np.ndarray, least: int = 0) -> np.ndarray:
    """``[classes, classes]``, how many samples of class i (row) were predicted as class j.

    There are as many classes as occur, and at least ``least``.
    """
    classes = max(least, int(max(true.max(), predicted.max())) + 1)
    counts = np.zeros((classes, classes), dtype=np.int64)
    np.add.at(counts, (true.astype(np.int64), predicted.astype(np.int64)), 1)
    return counts


def _counts(true: np.ndarray, score: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """True and false positives when the k highest scores are called positive, ties together."""
    order = np.argsort(-score, kind="stable")
    last_of_tie = np.append(np.flatnonzero(np.diff(score[order])), len(score) - 1)
    hits = np.cumsum(true[order])[last_of_tie]
    return hits, last_of_tie + 1 - hits


def _average_precision(true: np.ndarray, score: np.ndarray) -> float:
    """The sum over thresholds of (gain in recall) x precision."""
    hits, alarms = _counts(true, score)
    gain = np.diff(hits, prepend=0) / hits[-1]
    return float((gain * hits / (hits + alarms)).sum())
