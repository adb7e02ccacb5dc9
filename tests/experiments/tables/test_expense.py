"""Money and CO2 by a stated price and a stated draw."""

import pytest

from albert.experiments.grids import COSTS
from albert.experiments.price import Rates, implied_watts, price_and_energy
from albert.runtime.errors import InvalidConfiguration


def test_expense_by_hand():
    rates = Rates(price_per_hour=2.0, watts=500, overhead=1.5, co2_pounds_per_kwh=0.8)
    found = price_and_energy(40, rates)
    assert found.dollars == 80
    assert found.kilowatt_hours == pytest.approx(10 * 4 * 0.5 * 1.5)
    assert found.co2_pounds == pytest.approx(30 * 0.8) and found.co2_kilograms == pytest.approx(24 * 0.45359, rel=1e-4)


def test_a_draw_gives_the_published_co2_back():
    bert = COSTS[0]
    hours = 24 * bert["days"] * bert["devices"]
    watts = implied_watts(bert["co2_pounds"], hours)
    assert price_and_energy(hours, Rates(watts=watts)).co2_pounds == pytest.approx(bert["co2_pounds"])


@pytest.mark.parametrize("wrong", [{"price_per_hour": -1.0}, {"watts": -1.0}, {"overhead": 0.9}])
def test_impossible_rates_are_refused(wrong):
    with pytest.raises(InvalidConfiguration, match=next(iter(wrong))):
        Rates(**wrong)
