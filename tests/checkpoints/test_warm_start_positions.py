"""More positions by tiling or interpolation, fewer by cutting; rows that training never reached are not built on."""

import pytest
import torch

from albert.checkpoints.warm_start import positions_note, resize_positions

TABLE = torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_fewer_positions_are_the_first():
    for how in (None, "tile", "interpolate"):
        assert torch.equal(resize_positions(TABLE, 4, 6, how), TABLE[:4])


def test_tiled_rows_repeat_the_trained_ones():
    for how in (None, "tile"):
        assert torch.equal(resize_positions(TABLE, 14, 6, how), torch.cat((TABLE, TABLE, TABLE[:2])))


def test_interpolated_rows_lie_between_their_neighbours():
    table = resize_positions(TABLE, 11, 6, "interpolate")
    assert torch.equal(table[::2], TABLE)
    torch.testing.assert_close(table[1::2], (TABLE[1:] + TABLE[:-1]) / 2)
    assert torch.equal(resize_positions(TABLE, 7, 6, "interpolate")[[0, -1]], TABLE[[0, -1]])


def test_rows_that_were_never_trained_stay_unless_they_are_asked_for():
    assert torch.equal(resize_positions(TABLE, 6, 2, None), TABLE)
    assert torch.equal(resize_positions(TABLE, 6, 2, "tile"), TABLE[[0, 1, 0, 1, 0, 1]])
    assert torch.equal(resize_positions(TABLE, 8, 2, None), TABLE[[0, 1, 0, 1, 0, 1, 0, 1]])
    torch.testing.assert_close(resize_positions(TABLE, 3, 2, "interpolate")[1], (TABLE[0] + TABLE[1]) / 2)


def test_one_trained_row_is_every_row():
    assert torch.equal(resize_positions(TABLE, 3, 1, "interpolate"), TABLE[[0, 0, 0]])


@pytest.mark.parametrize(
    ("arguments", "note"),
    [
        ((512, 512, 512, None), None),
        ((512, 512, 512, "tile"), None),
        ((512, 128, 512, None), "512 → 128 positions, the first ones"),
        ((512, 1024, 512, None), "512 → 1,024 positions, 512 trained ones extended by tile"),
        ((512, 512, 128, "interpolate"), "512 → 512 positions, 128 trained ones extended by interpolate"),
    ],
)
def test_the_change_in_words(arguments, note):
    assert positions_note(*arguments) == note
