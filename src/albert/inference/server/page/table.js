// Predictions for a CSV file, row by row; the result has columns for the predictions.

const CONCURRENT_REQUESTS = 8;
const ATTEMPTS = 5;

/** The rows of a CSV file (RFC 4180), the header first. */
export function parseCsv(text) {
  const rows = [[""]];
  let quoted = false;
  for (let position = 0; position < text.length; position += 1) {
    const character = text[position];
    const row = rows.at(-1);
    if (quoted) {
      if (character !== '"') row[row.length - 1] += character;
      else if (text[position + 1] === '"') { row[row.length - 1] += '"'; position += 1; } else quoted = false;
    } else if (character === '"' && !row.at(-1)) quoted = true;
    else if (character === ",") row.push("");
    else if (character === "\n") rows.push([""]);
    else if (character !== "\r") row[row.length - 1] += character;
  }
  if (quoted) throw new Error("The file ends inside a quoted cell; close its quote.");
  return rows.filter((row) => row.length > 1 || row[0]);
}

const quotedCell = (value) => (/[",\r\n]/.test(`${value}`) ? `"${`${value}`.replaceAll('"', '""')}"` : `${value}`);

/** Field of a task -> index of its column: by name, or all required fields by position; optional ones by name only. */
export function columnsOf(task, header) {
  const names = { pair: ["pair", "text_pair", "text2"] };
  const named = task.fields.map(({ name }) => (
    header.findIndex((column) => (names[name] ?? [name]).includes(column.trim().toLowerCase()))));
  const byName = task.fields.some(({ optional }, position) => !optional && named[position] >= 0);
  return Object.fromEntries(task.fields.map(({ name, optional }, position) => {
    const column = byName || optional || named.includes(position) ? named[position] : position;
    if (!optional && header[column] === undefined) throw new Error(`The file has no column for ${name}.`);
    return [name, column];
  }));
}

/** Predict every row; returns the new file's text, and the number of rows that failed. */
export async function answerTable(task, model, text, progress) {
  const [header, ...rows] = parseCsv(text.replace(/^\ufeff/, ""));
  if (!rows.length) throw new Error("The file has no rows below its header.");
  const columns = columnsOf(task, header);
  const answers = new Array(rows.length);
  let [next, done] = [0, 0];
  async function work() {
    while (next < rows.length) {
      const number = next;
      next += 1;
      const row = Object.fromEntries(Object.entries(columns).map(([name, column]) => [name, rows[number][column] ?? ""]));
      answers[number] = await answer(task, model, row);
      const twice = header.find((column) => Object.hasOwn(answers[number], column));
      if (twice) {
        next = rows.length;
        throw new Error(`The file already has a column ${twice}; rename or remove it.`);
      }
      done += 1;
      progress(done, rows.length);
    }
  }
  await Promise.all(Array.from({ length: CONCURRENT_REQUESTS }, work));
  const added = [...new Set(answers.flatMap(Object.keys))];
  const lines = rows.map((row, number) => [
    ...header.map((_, column) => row[column] ?? ""), ...added.map((name) => answers[number][name] ?? ""),
  ]);
  const file = [[...header, ...added], ...lines].map((row) => `${row.map(quotedCell).join(",")}\r\n`).join("");
  return { file, rows: rows.length, failed: answers.filter(({ error }) => error).length };
}

/** The predicted cells of a row; waits while the queue is full, and a few times for a server that is not ready. */
async function answer(task, model, row) {
  for (let attempt = 1; ; attempt += 1) {
    const reply = await fetch(task.address, {
      method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(task.body(row)),
    });
    if (reply.status === 429 || (reply.status === 503 && attempt < ATTEMPTS)) {
      const seconds = Number(reply.headers.get("retry-after") ?? 1);
      await new Promise((later) => setTimeout(later, 1000 * seconds));
      continue;
    }
    const { results, error } = await reply.json();
    return reply.ok ? task.cells(task.all ? results : results[0], model) : { error };
  }
}
