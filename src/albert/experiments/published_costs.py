"""What pre-training was said to cost: a table of a talk about the paper, as data.

Its dollars are devices times hours times the price of one; its CO2 is that of Strubell et al. (2019, Table 3), who
estimated it from the draw of the hardware.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class PublishedCost:
    """A pre-training.

    Args:
        model: as the talk names it.
        size: layers and parameters, as printed.
        device: what it ran on.
        price: dollars an hour of one.
        devices: how many.
        days: how long.
        dollars: as printed.
        co2_pounds: as printed; None: not known.
    """

    model: str
    size: str
    device: str
    price: float
    devices: int
    days: float
    dollars: int
    co2_pounds: int | None

    @property
    def device_hours(self) -> float:
        """Hours of one device."""
        return 24 * self.days * self.devices


COSTS = (
    PublishedCost("BERT", "24 layers, 340M", "TPU v2", 4.5, 16, 4, 6_912, 1_428),
    PublishedCost("GPT-2", "48 layers, 1542M", "TPU v3", 8, 32, 7, 43_008, 2_516),
    PublishedCost("XLNet", "24 layers, 365M", "TPU v3", 8, 128, 2.5, 61_440, None),
)
