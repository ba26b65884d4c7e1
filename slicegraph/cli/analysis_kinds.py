"""What the samples of a model are made of, and whether its twin takes the same."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from slicegraph.data.sequences.sequence_store import SequenceStore


class Kind(NamedTuple):
    """What samples are made of: images, or as many sequences as a sample has, and their elements.

    The shape is that of an image, or of an element that is not a token. A model that was saved
    without its words takes all words.
    """

    towers: int = 0
    vocabulary: int | None = None
    words: tuple[str, ...] = ()
    shape: tuple[int, ...] = ()

    def takes(self, other: "Kind") -> bool:
        """Whether a model of this kind takes samples of the other."""
        return (self if self.words else self._replace(words=other.words)) == other

    def beside(self, other: "Kind") -> str:
        """In words that tell it from the other, which is not the same."""
        return self._told("other words" if str(self) == str(other) else "words")

    def __str__(self) -> str:
        return self._told("words")

    def _told(self, words: str) -> str:
        if not self.towers:
            return f"images of {' x '.join(map(str, self.shape))}"
        elements = words if self.words else self._elements
        return f"{'pairs of ' if self.towers == 2 else ''}sequences of {elements}"

    @property
    def _elements(self) -> str:
        from slicegraph.data.sequences.text_tokens import BYTES

        if self.vocabulary is None:
            return "numbers" if self.shape == (1,) else f"vectors of {self.shape[0]}"
        return "bytes" if self.vocabulary == BYTES else f"{self.vocabulary:,} tokens"


def kind_of_model(model: Any) -> Kind:
    """What a model of sequences or of images takes."""
    from slicegraph.class_predictor import VisionPredictor

    config = model.config
    if isinstance(model, VisionPredictor):
        return Kind(shape=(config.image_channels, config.image_size, config.image_size))
    shape = () if config.in_channels is None else (config.in_channels,)
    return Kind(config.towers, config.vocabulary, config.words, shape)


def kind_of_store(store: "SequenceStore") -> Kind:
    """What the samples of a store are; its numbers are vectors of one."""
    if store.shape is not None:
        return Kind(shape=store.shape)
    vocabulary = store.meta["vocabulary"]
    shape = (1,) if vocabulary is None else ()
    return Kind(store.towers, vocabulary, tuple(store.meta.get("words", ())), shape)


def check_twins(models: Mapping[str, Any]) -> None:
    """Raises an error if there are two models, by their paths, that do not take the same samples.

    The features of molecules are checked when there are molecules.
    """
    from slicegraph.predictor import MoleculePredictor

    if len({type(model) for model in models.values()}) > 1:
        raise _unlike(models, [model.takes for model in models.values()])
    if any(isinstance(model, MoleculePredictor) for model in models.values()):
        return
    own, *others = map(kind_of_model, models.values())
    for other in others:
        if not own.takes(other) and not other.takes(own):
            raise _unlike(models, [str(own), other.beside(own)])


def _unlike(models: Mapping[str, Any], kinds: list[str]) -> ValueError:
    (path, own), (twin, other) = zip(models, kinds, strict=True)
    return ValueError(
        f"--twin {twin} reads other samples: it is a model of {other}, and {path} of {own}; give a "
        "twin that was trained on the same data"
    )
