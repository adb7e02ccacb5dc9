"""The segments of google-research/albert's `create_pretraining_data.py`, by the name "sop-reference", to compare with.

Its ways, and what they give away: one draw a document decides on a shorter target length; sentences are added one by
one until the target is reached, so that a sequence's last sentence is a long one; a chunk of one sentence gets a second
segment of another document and the label of a swap; what is too long is cut off the longer segment, token by token, in
front or at the back by a coin, so that sentences are cut and a gap may open between two segments.

An epoch is one of the reference's passes over the corpus. What differs: all draws are functions of (seed, epoch, n);
foreign segments come from the documents of the same window; masks are ours, within segments.
"""

import numpy as np

from albert.pretraining.draws import below, draw, high, item_keys, low, share
from albert.pretraining.segments import Documents, SequenceTable
from albert.pretraining.sentence_order import IN_ORDER, SWAPPED, Runs, Segments, chosen, segments_of, tokens_to_take

DOCUMENT_TRIES = 10


def target_lengths(
    documents: np.ndarray, max_tokens: int, short_probability: float, seed: int, epoch: int
) -> np.ndarray:
    """Tokens that the sequences of each document are filled up to: all there is room for, or fewer, drawn uniformly.

    Args:
        documents: int64, numbers in the corpus.
        max_tokens, short_probability, seed, epoch: as of `pack_as_reference`.
    """
    bits = item_keys("reference target", seed, epoch, documents)
    short = 2 + below(low(bits), max_tokens - 1)
    return np.where(share(high(bits)) < short_probability, short, max_tokens)


def pack_as_reference(
    documents: Documents, max_tokens: int, short_probability: float, seed: int, epoch: int
) -> SequenceTable:
    """Fill sequences sentence by sentence up to each document's target; the last one may overflow it.

    Args:
        documents: which.
        max_tokens: tokens of a sequence, special ones not counted; rows may be longer, for they are cut later.
        short_probability: share of documents with a shorter target.
        seed, epoch: the draws depend on these and the corpus alone.
    """
    offsets = documents.sentence_starts
    numbers = documents.first_document + np.arange(len(documents.starts) - 1)
    targets = np.repeat(target_lengths(numbers, max_tokens, short_probability, seed, epoch), np.diff(documents.starts))
    ends = np.repeat(documents.starts[1:], np.diff(documents.starts))
    following = np.minimum(np.searchsorted(offsets, offsets[:-1] + targets), ends).tolist()
    chunks: list[int] = []
    sentence = 0
    while sentence < len(following):
        chunks.append(sentence)
        sentence = following[sentence]
    i = np.array(chunks)
    j = np.append(i[1:], len(following))
    place = share(high(item_keys("reference split", seed, epoch, documents.first_sentence + i)))
    split = np.where(j - i > 1, i + 1 + (place * (j - i - 1)).astype(np.int64), j)
    document = np.searchsorted(documents.starts, i, side="right") - 1 + documents.first_document
    return SequenceTable(offsets[i], offsets[split], offsets[j], document)


def order_as_reference(
    sequences: SequenceTable,
    targets: np.ndarray,
    window: tuple[Documents, ...],
    coins: np.ndarray,
    keys: np.ndarray,
    max_tokens: int,
) -> Segments:
    """Swap, bring in foreign segments, and cut to the length.

    Args:
        sequences: of `pack_as_reference`.
        targets: int64 [sequences], the target lengths of their documents.
        window: documents to take foreign segments from.
        coins: bool [sequences], which to swap.
        keys: uint64 [sequences], of all other draws.
        max_tokens: most tokens of both segments.
    """
    first, second = segments_of(sequences)
    alone = second.length == 0
    for row in np.flatnonzero(alone).tolist():
        wanted = int(targets[row] - first.length[row])
        second.begin[row], second.length[row] = _foreign(window, int(sequences.document[row]), wanted, keys[row])
    swapped = coins & ~alone
    labels = np.where(coins | alone, SWAPPED, IN_ORDER)
    return Segments(*_cut_to(max_tokens, chosen(swapped, second, first), chosen(swapped, first, second), keys), labels)


def _foreign(window: tuple[Documents, ...], own: int, wanted: int, key: np.uint64) -> tuple[int, int]:
    """Sentences of another document, from one drawn at random until there are as many tokens as wanted."""
    first_places = np.cumsum([0, *(len(some.starts) - 1 for some in window)])
    bits = draw(key, np.arange(DOCUMENT_TRIES + 1))
    numbers = below(high(bits[1:]), int(first_places[-1]))
    blocks = np.searchsorted(first_places, numbers, side="right") - 1
    places = numbers - first_places[blocks]
    drawn = np.array([window[block].first_document for block in blocks.tolist()]) + places
    one = int(np.argmax(drawn != own))  # the first that is another; the first of all when none is
    documents, place = window[blocks[one]], int(places[one])
    begin, end = documents.starts[place : place + 2].tolist()
    sentence = begin + int(below(high(bits[:1]), end - begin)[0])
    offsets = documents.sentence_starts
    last = min(max(int(np.searchsorted(offsets, offsets[sentence] + wanted)), sentence + 1), end)
    return int(offsets[sentence]), int(offsets[last] - offsets[sentence])


def _cut_to(max_tokens: int, first: Runs, second: Runs, keys: np.ndarray) -> tuple[Runs, Runs]:
    """Both segments after tokens were taken one by one from the longer one, the second when both are equally long."""
    from_first, from_second = tokens_to_take(max_tokens, first.length, second.length)
    return _shorter(first, from_first, draw(keys, 20)), _shorter(second, from_second, draw(keys, 21))


def _shorter(runs: Runs, tokens: np.ndarray, keys: np.ndarray) -> Runs:
    """Runs without some tokens, each of which was the front one by a coin: as many coins are tossed as are taken."""
    words = np.arange(int(tokens.max(initial=0)) // 64 + 1)
    bits = draw(keys[:, None], words)
    used = np.clip(tokens[:, None] - 64 * words, 0, 64).astype(np.uint64)
    bits = np.where(used == 64, bits, bits & ((np.uint64(1) << (used & np.uint64(63))) - np.uint64(1)))
    front = np.bitwise_count(bits).sum(axis=1, dtype=np.int64)
    return Runs(runs.begin + front, runs.length - tokens)
