// Predictions for a CSV file, row by row; the result has columns for the predictions.

const CONCURRENT_REQUESTS = 8;

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
    } else if (character === '"') quoted = true;
    else if (character === ",") row.push("");
    else if (character === "\n") rows.push([""]);
    else if (character !== "\r") row[row.length - 1] += character;
  }
  return rows.filter((row) => row.length > 1 || row[0]);
}

const quotedCell = (value) => (/[",\r\n]/.test(`${value}`) ? `"${`${value}`.replaceAll('"', '""')}"` : `${value}`);

/** Field of a task -> index of its column: by name, else by position; optional fields by name only. */
export function columnsOf(task, header) {
  const names = { pair: ["pair", "text_pair", "text2"] };
  return Object.fromEntries(task.fields.map(({ name, optional }, position) => {
    const named = header.findIndex((column) => (names[name] ?? [name]).includes(column.trim().toLowerCase()));
    return [name, named >= 0 || optional ? named : position];
  }));
}

/** Predict every row; returns the new file's text, and the number of rows that failed. */
export async function answerTable(task, text, progress) {
  const [header, ...rows] = parseCsv(text.replace(/^\ufeff/, ""));
  if (!rows.length) throw new Error("The file has no rows below its header.");
  const columns = columnsOf(task, header);
  const missing = Object.entries(columns).find(([, column]) => column >= header.length);
  if (missing) throw new Error(`The file has no column for ${missing[0]}.`);
  const answers = new Array(rows.length);
  let [next, done] = [0, 0];
  async function work() {
    while (next < rows.length) {
      const number = next;
      next += 1;
      const row = Object.fromEntries(Object.entries(columns).map(([name, column]) => [name, rows[number][column] ?? ""]));
      answers[number] = await answer(task, row);
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

/** The predicted cells of a row; waits while the queue is full. */
async function answer(task, row) {
  for (;;) {
    const reply = await fetch(task.address, {
      method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(task.body(row)),
    });
    if (reply.status === 429 || reply.status === 503) {
      const seconds = Number(reply.headers.get("retry-after") ?? 1);
      await new Promise((later) => setTimeout(later, 1000 * seconds));
      continue;
    }
    const { results, error } = await reply.json();
    return reply.ok ? task.cells(task.all ? results : results[0]) : { error };
  }
}
