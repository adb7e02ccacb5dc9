"""What a run costs in money and in CO2, from a stated price and a stated draw.

Electricity: Strubell et al. (2019, §2) take what the hardware draws times 1.58 for the rest of a data centre (Ascierto
2018), and 0.954 pounds of CO2 for a kilowatt-hour, the mean of the United States (EPA 2018). Both are numbers of their
time and place; give those of yours.
"""

from dataclasses import dataclass

from albert.runtime.errors import InvalidConfiguration

POUNDS_PER_KILOGRAM = 2.20462


@dataclass(frozen=True, kw_only=True)
class Rates:
    """What an hour of the machine costs."""

    price_per_hour: float = 0.0
    """Dollars; the default says nothing about money."""
    watts: float = 0.0
    """What processors, accelerators and memory draw under load; the default says nothing about electricity."""
    overhead: float = 1.58
    """What the data centre draws for a watt of its machines (its PUE)."""
    co2_pounds_per_kwh: float = 0.954
    """Pounds of CO2 that a kilowatt hour emits (Strubell et al., 2019)."""

    def __post_init__(self) -> None:
        for name in ("price_per_hour", "watts", "co2_pounds_per_kwh"):
            if not getattr(self, name) >= 0:
                raise InvalidConfiguration(name, f"is {getattr(self, name)}, at least 0 is needed")
        if not self.overhead >= 1:
            raise InvalidConfiguration("overhead", f"is {self.overhead}, at least 1 is needed")


@dataclass(frozen=True, kw_only=True)
class PriceAndEnergy:
    """Of a run."""

    dollars: float
    kilowatt_hours: float
    co2_pounds: float

    @property
    def co2_kilograms(self) -> float:
        return self.co2_pounds / POUNDS_PER_KILOGRAM


def price_and_energy(hours: float, rates: Rates, devices: int = 1) -> PriceAndEnergy:
    """What so many hours cost."""
    kilowatt_hours = hours * devices * rates.watts * rates.overhead / 1000
    return PriceAndEnergy(
        dollars=hours * devices * rates.price_per_hour,
        kilowatt_hours=kilowatt_hours,
        co2_pounds=kilowatt_hours * rates.co2_pounds_per_kwh,
    )


def implied_watts(co2_pounds: float, device_hours: float, rates: Rates | None = None) -> float:
    """The draw of one device that a published figure of CO2 comes to."""
    rates = rates or Rates()
    return 1000 * co2_pounds / (rates.co2_pounds_per_kwh * rates.overhead * device_hours)


# --------------------------------------------------------------------------------------------------------------------
# What pre-training cost others, by a table of a talk about the paper. Its dollars are devices times hours times the
# price of one; its CO2 is that of Strubell et al. (2019, Table 3), who estimated it from the draw of the hardware.


@dataclass(frozen=True)
class PublishedCost:
    """A pre-training.

    Args:
        size: layers and parameters, as printed.
        price: dollars an hour of one.
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
        return 24 * self.days * self.devices


COSTS = (
    PublishedCost("BERT", "24 layers, 340M", "TPU v2", 4.5, 16, 4, 6_912, 1_428),
    PublishedCost("GPT-2", "48 layers, 1542M", "TPU v3", 8, 32, 7, 43_008, 2_516),
    PublishedCost("XLNet", "24 layers, 365M", "TPU v3", 8, 128, 2.5, 61_440, None),
)
