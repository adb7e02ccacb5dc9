"""A trained model that goes on with a window over longer sequences, and what `albert info` says of it, as typed."""

import json

from albert.cli.main import run

SHORT = [
    *("--batch-size", "2", "--evaluation-sequences", "4", "--schedule.total-steps", "2"),
    *("--schedule.warmup-steps", "1", "--precision", "fp32", "--device", "cpu"),
]


def test_a_dense_model_goes_on_with_a_window_over_longer_sequences(scene, tmp_path, capsys):
    words = ["--model.attention-window", "40", "--extend-positions", "tile", "--model.max-position-embeddings", "256"]
    place = ["--data", str(scene.corpus), "--output", str(tmp_path / "run")]
    longer = ["--sequences.max-length", "256"]
    assert run(["pretrain", "continue", "--init", str(scene.run), *SHORT, *words, *longer, *place]) == 0
    assert "attention_window None → 40 (what fits into the narrower window is computed as before)" in (
        " ".join(capsys.readouterr().err.split())
    )
    said = json.loads((tmp_path / "run/model/config.json").read_text())
    assert (said["model_type"], said["attention_window"]) == ("albert_window", 40)
    card = (tmp_path / "run/model/README.md").read_text(encoding="utf-8")
    assert "40 tokens to either side" in card and "from_pretrained" not in card
    assert run(["info", str(tmp_path / "run/model"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["configuration"]["attention_window"] == 40
    # two layers, width 32: 2·2·2·32 for each token that is seen
    assert told["flops_per_token"]["attention_scores"] < 2 * 2 * 2 * 32 * (2 * 40 + 1 + 2)
