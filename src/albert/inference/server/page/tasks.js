// Views of the tasks: fields and examples, the request's body for the input, and the elements of a result. The server
// lists which tasks there are.

import { bars, cutNotice, element, emptyNotice, legend, passage, percent } from "./elements.js";

const texts = ({ text, pair }) => (pair === undefined ? { texts: [text] } : { texts: [text], pairs: [pair] });
const layersOfText = ({ text, pair }) => (pair ? { text, pair } : { text });
const layersOfBoth = ({ first, second }) => ({ text: first, pair: second });
const segmentList = (...parts) => element("ol", { class: "segments" },
  ...parts.map((each) => element("li", {}, element("span", {}, each))));

const field = (name, label, rows, more = {}) => ({ name, label, rows, ...more });
const PAIR_FIELDS = [field("text", "Text", 4), field("pair", "Second text", 2, { optional: true, only_pairs: true })];
const SHIP = "The captain stood on the deck of the ship and looked at the dark water.";
const PASSAGE = "The Nautilus left the harbour of Lisbon in the spring of 1867. Captain Nemo stood on the bridge; "
  + "beside him lay a chart of the Pacific Ocean, on which a small island had been marked in red.";

const VIEWS = {
  "/fill-mask": {
    title: "Fill a mask",
    hint: "Write [MASK] in place of one or more words.",
    fields: [field("text", "Text", 4)],
    examples: [
      { text: "The captain stood on the [MASK] of the ship." },
      { text: "She opened the [MASK] and read it by the fire." },
      { text: "It was a [MASK] and [MASK] night." },
    ],
    body: ({ text }) => ({ texts: [text], top_k: 5 }),
    show(masks) {
      return masks.flatMap((mask, number) => [
        ...(masks.length > 1 ? [element("h3", {}, `Mask ${number + 1}`)] : []),
        bars(mask.map((each) => ({ label: each.token_str || "(nothing)", share: each.score, context: each.sequence }))),
      ]);
    },
    cells: (masks) => ({ predicted_words: masks.map(([best]) => best.token_str).join(" ") }),
    inside: layersOfText,
  },
  "/classify": {
    title: "Classify",
    hint: "Every label with its probability.",
    fields: PAIR_FIELDS,
    examples: [
      { text: SHIP },
      { text: "A fine film, from its first minute to its last." },
      { text: "Two hours that nobody will give me back." },
    ],
    body: texts,
    show: (labels) => [
      bars(labels.map(({ label, score }) => ({ label, share: score }))),
      ...cutNotice(labels[0].tokens_cut), ...emptyNotice(labels[0].empty),
    ],
    cells: (labels, model) => (model.problem_type === "multi_label_classification" ? {
      predicted_labels: JSON.stringify(labels.filter(({ predicted }) => predicted).map(({ label }) => label)),
      predicted_scores: JSON.stringify(Object.fromEntries(labels.map(({ label, score }) => [label, score]))),
    } : { predicted_label: labels[0].label, predicted_score: labels[0].score }),
    inside: layersOfText,
  },
  "/score": {
    title: "Score",
    hint: "The number that the model predicts.",
    fields: PAIR_FIELDS,
    examples: [{ text: "A man plays a guitar.", pair: "Somebody makes music." }, { text: SHIP }],
    body: texts,
    show: ({ score, tokens_cut, empty }) => [
      element("p", { class: "big" }, score.toFixed(3)), ...cutNotice(tokens_cut), ...emptyNotice(empty),
    ],
    cells: ({ score }) => ({ predicted_score: score }),
  },
  "/answer": {
    title: "Answer",
    hint: "The answer is an exact span of the text.",
    fields: [field("question", "Question", 2), field("context", "Text", 8)],
    examples: [
      { question: "Who stood on the bridge?", context: PASSAGE },
      { question: "When did the Nautilus leave?", context: PASSAGE },
    ],
    body: ({ question, context }) => ({ questions: [{ question, context }], top_k: 3 }),
    show(answers, { context }) {
      const [best] = answers;
      const spans = best.end > best.start
        ? [{ start: best.start, end: best.end, make: (slice) => element("mark", {}, slice) }] : [];
      return [
        bars(answers.map(({ answer, score }) => ({ label: answer || "(no answer)", share: score }))),
        passage(context, spans), ...cutNotice(best.tokens_cut),
      ];
    },
    cells: ([best]) => ({ predicted_answer: best.answer, predicted_score: best.score }),
  },
  "/tag": {
    title: "Tag words",
    hint: "Every word with its label.",
    fields: [field("text", "Text", 6)],
    examples: [{ text: PASSAGE }, { text: SHIP }],
    body: ({ text }) => ({ texts: [text] }),
    show(words, { text }) {
      if (!words.length) return [element("p", { class: "hint" }, "The text has no words.")];
      const entities = merged(words);
      const kinds = [...new Set(entities.map(({ kind }) => kind))].sort();
      const paint = (node, kind) => { node.style.background = colour(kinds.indexOf(kind), kinds.length); return node; };
      const spans = entities.map(({ start, end, kind, score }) => ({
        start, end,
        make: (slice) => paint(element("span", { class: "word", title: `${kind}, ${percent(score)}` }, slice,
          element("small", {}, kind)), kind),
      }));
      const count = (kind) => entities.filter((each) => each.kind === kind).length;
      return [
        passage(text, spans),
        legend(kinds.map((kind) => paint(element("li", {}, `${kind} (${count(kind)})`), kind)), "No word has a label."),
      ];
    },
    cells: (words) => ({ predicted_entities: JSON.stringify(merged(words).map(({ kind, text }) => [text, kind])) }),
  },
  "/choose": {
    title: "Choose",
    hint: "One option per line, at least two.",
    fields: [
      field("context", "Text", 5), field("question", "Question", 2, { optional: true }), field("options", "Options", 4),
    ],
    examples: [{
      context: PASSAGE, question: "What was marked on the chart?", options: "an island\na harbour\na ship\nLisbon",
    }],
    body: ({ context, question, options }) => ({
      questions: [{ context, question, options: options.split("\n").map((line) => line.trim()).filter(Boolean) }],
    }),
    show: (options) => [
      bars(options.map(({ option, score }) => ({ label: option, share: score }))),
      ...cutNotice(Math.max(...options.map(({ tokens_cut }) => tokens_cut ?? 0))),
    ],
    cells: null, // options are several columns, or a list in one
  },
  "/order": {
    title: "Order",
    hint: "Are two adjacent segments in order or swapped?",
    fields: [field("first", "First segment", 3), field("second", "Second segment", 3)],
    examples: [
      { first: "She opened the letter.", second: "It was from her brother in Lisbon." },
      { first: "It was from her brother in Lisbon.", second: "She opened the letter." },
    ],
    body: ({ first, second }) => ({ pairs: [[first, second]] }),
    show(result, { first, second }) {
      const yes = result.probability_in_order ?? result.probability_next;
      const named = result.probability_in_order === undefined ? ["next", "foreign"] : ["in order", "swapped"];
      const sorted = [{ label: named[0], share: yes }, { label: named[1], share: 1 - yes }];
      const order = result.label === "swapped" ? [second, first] : [first, second];
      return [
        bars(sorted.sort((one, other) => other.share - one.share)), segmentList(...order),
        ...cutNotice(result.tokens_cut), ...emptyNotice(result.empty),
      ];
    },
    cells: ({ label, score }) => ({ predicted_label: label, predicted_score: score }),
    inside: layersOfBoth,
  },
  "/embed": {
    title: "Compare",
    hint: "Similarity of two texts: the cosine of their vectors.",
    fields: [field("first", "One text", 3), field("second", "Another", 3)],
    examples: [
      { first: "A storm at sea.", second: "Wind and high waves." },
      { first: "A storm at sea.", second: "The doctor wrote a letter." },
    ],
    body: ({ first, second }) => ({ texts: [first, second], normalize: true }),
    all: true,
    show([one, other], { first, second }) {
      return [
        element("p", { class: "big" }, cosine(one, other).toFixed(3)),
        element("p", { class: "hint" },
          `The cosine of two vectors of ${one.vector.length} numbers; 1 is the same direction, 0 is orthogonal.`),
        segmentList(first, second),
        ...cutNotice((one.tokens_cut ?? 0) + (other.tokens_cut ?? 0)), ...emptyNotice(one.empty || other.empty),
      ];
    },
    cells: null, // a file of vectors is no table
  },
};

/** Default view of a task: one text field, and the result as JSON. */
const PLAIN = {
  fields: [field("text", "Text", 4)],
  examples: [],
  body: ({ text }) => ({ texts: [text] }),
  show: (answer) => [element("pre", {}, JSON.stringify(answer, null, 2))],
  cells: (answer) => ({ predicted: JSON.stringify(answer) }),
};

export async function loadTasks() {
  const reply = await fetch("page/tasks.json");
  return (await reply.json()).map((entry) => ({ ...PLAIN, ...entry, ...VIEWS[entry.address] }));
}

const cosine = (one, other) => one.vector.reduce((sum, value, index) => sum + value * other.vector[index], 0);

/** Merge words of one entity (B-, then I- or E-); words outside of entities are left out. */
function merged(words) {
  const entities = [];
  for (const { word, entity, score, start, end } of words) {
    const last = entities.at(-1);
    if (entity === "O") {
      entities.push(null);
    } else if (last && /^[IE]-/.test(entity) && last.kind === kindOf(entity)) {
      Object.assign(last, { end, score: Math.min(last.score, score), text: `${last.text} ${word}` });
    } else {
      entities.push({ kind: kindOf(entity), start, end, score, text: word });
    }
  }
  return entities.filter(Boolean);
}

const kindOf = (entity) => entity.replace(/^[BIES]-/, "");
const colour = (index, count) => `hsl(${(210 + (360 * index) / Math.max(count, 1)) % 360} 70% 50% / 0.28)`;
