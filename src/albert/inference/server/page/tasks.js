// What can be asked: for each address its fields, examples, the request's body, and how an answer is shown.

import { bars, cutNotice, element, passage, percent } from "/page/elements.js";

const SHIP = "The captain stood on the deck of the ship and looked at the dark water.";
const PASSAGE = "The Nautilus left the harbour of Lisbon in the spring of 1867. Captain Nemo stood on the bridge; "
  + "beside him lay a chart of the Pacific Ocean, on which a small island had been marked in red.";

const text = (label, rows = 4) => ({ name: "text", label, rows });
const second = { name: "pair", label: "Second text, if the model was trained on pairs", rows: 2, optional: true };

function texts({ text, pair }) {
  return pair ? { texts: [text], pairs: [pair] } : { texts: [text] };
}

export const TASKS = [
  {
    address: "/fill-mask",
    title: "Fill a mask",
    hint: "Write [MASK] where a word is to be found, once or several times.",
    fields: [text("Text")],
    examples: [
      { text: "The captain stood on the [MASK] of the ship." },
      { text: "She opened the [MASK] and read it by the fire." },
      { text: "It was a [MASK] and [MASK] night." },
    ],
    body: ({ text }) => ({ texts: [text], top_k: 5 }),
    show(masks) {
      return masks.flatMap((mask, number) => [
        ...(masks.length > 1 ? [element("h3", {}, `Mask ${number + 1}`)] : []),
        bars(mask.map((each) => ({ what: each.token_str || "(nothing)", share: each.score, context: each.sequence }))),
      ]);
    },
    inside: ({ text }) => ({ text }),
  },
  {
    address: "/classify",
    title: "Classify",
    hint: "Every label with its probability.",
    fields: [text("Text"), second],
    examples: [
      { text: SHIP },
      { text: "A fine film, from its first minute to its last." },
      { text: "Two hours that nobody will give me back." },
    ],
    body: texts,
    show: (labels) => [
      bars(labels.map(({ label, score }) => ({ what: label, share: score }))),
      ...(labels[0].depth ? [element("p", { class: "notice" }, `Decided after ${labels[0].depth} layers.`)] : []),
      ...cutNotice(labels[0].tokens_cut),
    ],
    inside: ({ text, pair }) => (pair ? { text, pair } : { text }),
  },
  {
    address: "/score",
    title: "Score",
    hint: "The number that the model predicts.",
    fields: [text("Text"), second],
    examples: [{ text: "A man plays a guitar.", pair: "Somebody makes music." }, { text: SHIP }],
    body: texts,
    show: ({ score, tokens_cut }) => [
      element("p", { class: "big" }, score.toFixed(3)), ...cutNotice(tokens_cut),
    ],
    inside: ({ text, pair }) => (pair ? { text, pair } : { text }),
  },
  {
    address: "/answer",
    title: "Answer",
    hint: "The answer is a part of the text, word for word.",
    fields: [{ name: "question", label: "Question", rows: 2 }, { name: "context", label: "Text", rows: 8 }],
    examples: [
      { question: "Who stood on the bridge?", context: PASSAGE },
      { question: "When did the Nautilus leave?", context: PASSAGE },
    ],
    body: ({ question, context }) => ({ questions: [{ question, context }], top_k: 3 }),
    show(answers, { context }) {
      const [best] = answers;
      const marked = best.end > best.start
        ? [{ start: best.start, end: best.end, make: (slice) => element("mark", {}, slice) }] : [];
      return [
        bars(answers.map(({ answer, score }) => ({ what: answer || "(the text does not say)", share: score }))),
        passage(context, marked), ...cutNotice(best.tokens_cut),
      ];
    },
    inside: ({ question, context }) => ({ text: question, pair: context }),
  },
  {
    address: "/tag",
    title: "Tag words",
    hint: "Every word with its label.",
    fields: [text("Text", 6)],
    examples: [{ text: PASSAGE }, { text: SHIP }],
    body: ({ text }) => ({ texts: [text] }),
    show(words, { text }) {
      if (!words.length) return [element("p", { class: "hint" }, "There is no word to tag.")];
      const kinds = [...new Set(words.map(({ entity }) => kindOf(entity)))].filter((kind) => kind !== "O").sort();
      const shown = words.map(({ start, end, entity, score }) => ({
        start, end,
        make(slice) {
          if (entity === "O") return slice;
          const word = element("span", { class: "word", title: percent(score) }, slice, element("small", {}, entity));
          word.style.background = colour(kinds.indexOf(kindOf(entity)), kinds.length);
          return word;
        },
      }));
      return [passage(text, shown)];
    },
    inside: ({ text }) => ({ text }),
  },
  {
    address: "/choose",
    title: "Choose",
    hint: "One option a line, two at least.",
    fields: [
      { name: "context", label: "Text", rows: 5 },
      { name: "question", label: "Question", rows: 2, optional: true },
      { name: "options", label: "Options", rows: 4 },
    ],
    examples: [
      { context: PASSAGE, question: "What was marked on the chart?", options: "an island\na harbour\na ship\nLisbon" },
    ],
    body: ({ context, question, options }) => ({
      questions: [{ context, question, options: options.split("\n").map((line) => line.trim()).filter(Boolean) }],
    }),
    show: (options) => [
      bars(options.map(({ option, score }) => ({ what: option, share: score }))),
      ...cutNotice(Math.max(...options.map(({ tokens_cut }) => tokens_cut ?? 0))),
    ],
    inside: ({ question, context }) => ({ text: context, pair: question }),
  },
  {
    address: "/order",
    title: "Order",
    hint: "Are two adjacent segments in the order in which they were written?",
    fields: [{ name: "first", label: "First segment", rows: 3 }, { name: "second", label: "Second segment", rows: 3 }],
    examples: [
      { first: "She opened the letter.", second: "It was from her brother in Lisbon." },
      { first: "It was from her brother in Lisbon.", second: "She opened the letter." },
    ],
    body: ({ first, second }) => ({ pairs: [[first, second]] }),
    show(found, { first, second }) {
      const yes = found.probability_in_order ?? found.probability_next;
      const named = found.probability_in_order === undefined ? ["next", "foreign"] : ["in order", "swapped"];
      const sorted = [{ what: named[0], share: yes }, { what: named[1], share: 1 - yes }];
      const order = found.label === "swapped" ? [second, first] : [first, second];
      return [
        bars(sorted.sort((one, other) => other.share - one.share)),
        element("ol", { class: "segments" }, ...order.map((each) => element("li", {}, element("span", {}, each)))),
        ...cutNotice(found.tokens_cut),
      ];
    },
    inside: ({ first, second }) => ({ text: first, pair: second }),
  },
  {
    address: "/embed",
    title: "Compare",
    hint: "How near two texts are: the cosine of their vectors.",
    fields: [{ name: "first", label: "One text", rows: 3 }, { name: "second", label: "Another", rows: 3 }],
    examples: [
      { first: "A storm at sea.", second: "Wind and high waves." },
      { first: "A storm at sea.", second: "The doctor wrote a letter." },
    ],
    body: ({ first, second }) => ({ texts: [first, second], normalize: true }),
    all: true,
    show([one, other]) {
      const cosine = one.vector.reduce((sum, value, place) => sum + value * other.vector[place], 0);
      return [
        element("p", { class: "big" }, cosine.toFixed(3)),
        element("p", { class: "hint" },
          `The cosine of two vectors of ${one.vector.length} numbers; 1 is the same direction, 0 has nothing in common.`),
        ...cutNotice((one.tokens_cut ?? 0) + (other.tokens_cut ?? 0)),
      ];
    },
    inside: ({ first, second }) => ({ text: first, pair: second }),
  },
];

const kindOf = (entity) => entity.replace(/^[BIES]-/, "");
const colour = (place, count) => `hsl(${(210 + (360 * place) / Math.max(count, 1)) % 360} 70% 50% / 0.28)`;
