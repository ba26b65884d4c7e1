"""What a model of images is made of."""

from dataclasses import dataclass, fields

from slicegraph.models.sequence_config import EncoderConfig, SequenceSliceformerConfig


@dataclass(frozen=True)
class VisionSliceformerConfig(EncoderConfig):
    """The configuration of :class:`~slicegraph.models.VisionSliceformer`.

    Args:
        num_layers ... class_names: see :class:`~slicegraph.models.sequence_config.EncoderConfig`.
        image_size: the height and width of an image.
        patch_size: the height and width of a patch, which divides ``image_size``.
        image_channels: the number of colours.
    """

    image_size: int = 224
    patch_size: int = 16
    image_channels: int = 3
    readout: str = "cls"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("image_size", "patch_size", "image_channels"):
            self._at_least_one(name)
        if self.image_size % self.patch_size:
            raise ValueError(
                f"{self._name}: patch_size = {self.patch_size} does not divide image_size = "
                f"{self.image_size}"
            )

    @property
    def num_patches(self) -> int:
        """How many patches an image has."""
        return (self.image_size // self.patch_size) ** 2

    def of_patches(self) -> SequenceSliceformerConfig:
        """The model of the sequence of patches."""
        shared = {field.name: getattr(self, field.name) for field in fields(EncoderConfig)}
        return SequenceSliceformerConfig(
            **shared,
            vocabulary=None,
            in_channels=self.image_channels * self.patch_size**2,
            max_length=self.num_patches,
        )
