"""Keep the most frequent pieces of a BERT's WordPiece vocabulary, and some of its layers.

    python dev/scripts/trim_bert.py MODEL texts.jsonl --pieces 12000 --layers 1 3 5 6 --output trimmed

Most of a small BERT is its embeddings: 30,522 pieces of width 384 are half of MiniLM. A model with fewer pieces gives
the same results for every text that has none of the others; their words are divided into shorter pieces (Abdaoui et al.
2020, "Load What You Need", arXiv 2010.05609). Some layers can be left out without training, too (Fan et al. 2019,
"LayerDrop", arXiv 1909.11556). Distillation (`albert finetune-vectors --model trimmed`) then teaches the
model what was lost.

MODEL is a directory of Hugging Face's layout with model.safetensors and tokenizer.json. Every line of the texts is a
JSON object with a `text`. Special pieces, ASCII characters and single characters of the texts are always kept."""

import argparse
import json
import shutil
from collections import Counter
from pathlib import Path

from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer


def main() -> None:
    """Write the smaller model, and print how often the texts have a piece that was left out."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("texts", type=Path)
    parser.add_argument("--pieces", type=int, required=True)
    parser.add_argument(
        "--layers", type=int, nargs="+", metavar="N", help="the layers to keep, from 1; all when not set"
    )
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()

    tokenizer = Tokenizer.from_file(str(options.model / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    counts: Counter[int] = Counter()
    with options.texts.open(encoding="utf-8") as lines:
        for line in lines:
            counts.update(tokenizer.encode(json.loads(line)["text"], add_special_tokens=False).ids)

    description = json.loads((options.model / "tokenizer.json").read_text(encoding="utf-8"))
    if description["model"].get("type", "WordPiece") != "WordPiece":
        parser.error(f"{options.model} has no WordPiece vocabulary")
    vocabulary: dict[str, int] = description["model"]["vocab"]
    mark = description["model"]["continuing_subword_prefix"]
    special = {token["content"] for token in description["added_tokens"]}
    always = []
    for piece, number in vocabulary.items():
        character = piece.removeprefix(mark)
        if piece in special or (len(character) == 1 and (character.isascii() or number in counts)):
            always.append(number)
    frequent = [number for number, _ in counts.most_common() if number not in set(always)]
    kept = sorted([*always, *frequent[: options.pieces - len(always)]])
    new_number = {old: new for new, old in enumerate(kept)}

    description["model"]["vocab"] = {
        piece: new_number[number]
        for piece, number in sorted(vocabulary.items(), key=lambda entry: entry[1])
        if number in new_number
    }
    for token in description["added_tokens"]:
        token["id"] = new_number[token["id"]]
    processor = description["post_processor"]
    for token in processor.get("special_tokens", {}).values():
        token["ids"] = [new_number[number] for number in token["ids"]]
    for name in ("cls", "sep"):
        if name in processor:
            processor[name][1] = new_number[processor[name][1]]
    config = json.loads((options.model / "config.json").read_text(encoding="utf-8"))
    rows = config["vocab_size"]
    tensors = load_file(options.model / "model.safetensors")
    for name, tensor in tensors.items():
        if name.endswith(("word_embeddings.weight", "predictions.bias", "predictions.decoder.weight", "decoder.bias")):
            assert len(tensor) == rows, name
            tensors[name] = tensor[kept].contiguous()
    if options.layers:
        place = {str(layer - 1): str(number) for number, layer in enumerate(sorted(set(options.layers)))}
        if not all(1 <= layer <= config["num_hidden_layers"] for layer in options.layers):
            parser.error(f"--layers: the model has the layers 1 to {config['num_hidden_layers']}")
        thinned = {}
        for name, tensor in tensors.items():
            before, mark_of_layer, rest = name.partition("encoder.layer.")
            layer, _, parameter = rest.partition(".")
            if not mark_of_layer:
                thinned[name] = tensor
            elif layer in place:
                thinned[f"{before}encoder.layer.{place[layer]}.{parameter}"] = tensor
        tensors = thinned
        config["num_hidden_layers"] = len(place)
    config["vocab_size"] = len(kept)
    if "pad_token_id" in config:
        config["pad_token_id"] = new_number[config["pad_token_id"]]

    shutil.copytree(options.model, options.output)
    for file in ("MANIFEST.json", "README.md"):
        (options.output / file).unlink(missing_ok=True)
    save_file(tensors, options.output / "model.safetensors", metadata={"format": "pt"})
    (options.output / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    text = json.dumps(description, ensure_ascii=False, indent=2) + "\n"
    (options.output / "tokenizer.json").write_text(text, encoding="utf-8")
    lines_of_vocabulary = "".join(piece + "\n" for piece in description["model"]["vocab"])
    (options.output / "vocab.txt").write_text(lines_of_vocabulary, encoding="utf-8")
    lost = sum(count for number, count in counts.items() if number not in new_number)
    print(
        f"{len(vocabulary):,} → {len(kept):,} pieces; {lost / counts.total():.2%} of the pieces of the texts are lost"
    )


if __name__ == "__main__":
    main()
