"""What is one run has one name and one key, whichever table asks for it; what is another has another."""

from dataclasses import replace

import pytest

from albert.experiments.grids import SCALES, TINY, arm, arm_key, grid_of

CORPORA = ("first", "second")


@pytest.mark.parametrize("scale", SCALES.values(), ids=list(SCALES))
def test_equal_runs_have_equal_names_and_keys_and_others_have_others(scale, all_arms):
    arms = all_arms(scale)
    keys = [arm_key(one, CORPORA) for one in arms]
    assert len(set(keys)) == len(arms) > 30
    base = arm(scale)
    for table, row in (("2", "albert-base"), ("3", "all shared, E = 128"), ("4", "E = 128, all"), ("5", "sop")):
        assert grid_of(table, scale).row(row).arm == base
    bert = grid_of("2", scale).row("bert-base").arm
    assert grid_of("3", scale).row("not shared, E = 768").arm == bert == grid_of("4", scale).row("E = 768, none").arm


def test_a_key_knows_all_that_changes_a_run_and_nothing_else():
    base = arm(TINY)
    key = arm_key(base, CORPORA)
    others = [
        base.seeded(1),
        arm(TINY, objective="nsp"),
        arm(TINY, dropout_off_at=5),
        arm(TINY, steps=7_000),
        arm(TINY, additional_text=True),
        arm(TINY, start=arm(TINY, layers=2)),
        arm(TINY, start=arm(TINY, layers=2).seeded(1)),
        replace(base, recipe=replace(base.recipe, max_minutes=1.0)),
    ]
    keys = [arm_key(one, CORPORA) for one in others]
    assert len({key, *keys}) == len(others) + 1
    free = replace(base.recipe, workers=3, checkpoint_minutes=1.0, keep_checkpoints=9)
    assert arm_key(replace(base, recipe=free, name="another"), CORPORA) == key
    assert arm_key(base, ("first",)) == key != arm_key(base, ("second",))
    assert arm_key(others[4], ("first",)) == key  # with one corpus there is no additional text


def test_a_seed_goes_for_what_a_run_begins_as_too():
    last = grid_of("11", TINY).row("48").arm.seeded(4)
    assert [one.recipe.model.num_hidden_layers for one in last.chain()] == [1, 2, 4, 8, 16]
    assert {one.recipe.seed for one in last.chain()} == {4}
