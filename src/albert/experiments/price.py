"""Money and CO2 of a run, from a given price and power.

Strubell et al. (2019, §2) multiply the power of the hardware by 1.58 for the rest of a data centre (Ascierto 2018), and
a kilowatt-hour by 0.954 pounds of CO2, the mean of the United States (EPA 2018). Both depend on time and place.
"""

from dataclasses import dataclass

from albert.runtime.errors import InvalidConfiguration

POUNDS_PER_KILOGRAM = 2.20462


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Price, power and CO2 of an hour of the machine."""

    price_per_hour: float = 0.0
    """Dollars; 0 leaves money out of the report."""
    watts: float = 0.0
    """Power of processors, accelerators and memory under load; 0 leaves electricity out of the report."""
    overhead: float = 1.58
    """Power of the data centre per watt of its machines (PUE)."""
    co2_pounds_per_kwh: float = 0.954
    """Pounds of CO2 per kilowatt-hour (Strubell et al., 2019)."""

    def __post_init__(self) -> None:
        for name, least in (("price_per_hour", 0), ("watts", 0), ("co2_pounds_per_kwh", 0), ("overhead", 1)):
            if not getattr(self, name) >= least:
                raise InvalidConfiguration(name, f"is {getattr(self, name)}, at least {least} is needed")


@dataclass(frozen=True, kw_only=True)
class PriceAndEnergy:
    """Money, electricity and CO2 of a run."""

    dollars: float
    kilowatt_hours: float
    co2_pounds: float

    @property
    def co2_kilograms(self) -> float:
        return self.co2_pounds / POUNDS_PER_KILOGRAM


def price_and_energy(hours: float, rates: Rates) -> PriceAndEnergy:
    """The cost of some hours of the machine."""
    kilowatt_hours = hours * rates.watts * rates.overhead / 1000
    return PriceAndEnergy(
        dollars=hours * rates.price_per_hour,
        kilowatt_hours=kilowatt_hours,
        co2_pounds=kilowatt_hours * rates.co2_pounds_per_kwh,
    )


def implied_watts(co2_pounds: float, device_hours: float) -> float:
    """The power of one device that a published figure of CO2 implies, by the formula above."""
    return 1000 * co2_pounds / (Rates.co2_pounds_per_kwh * Rates.overhead * device_hours)
