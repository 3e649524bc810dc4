/** What log p loses without each head: measured behind the answer, shown as a measure of heads. */

export function createEffects() {
  /** @type {Record<string, (number | null)[][]>} by stream */
  let table = {};
  let stale = true;
  return {
    /** They are of another question now. */
    age() {
      stale = true;
    },
    /** @param {string} stream @param {number[][]} values */
    take(stream, values) {
      if (stale) table = {};
      stale = false;
      table[stream] = values.map((layer) => layer.map((value) => (Number.isFinite(value) ? value : null)));
      return table;
    },
    /** The effects as a measure of heads, where the map has a head for each. @param {PageMap[]} maps */
    add(maps) {
      for (const map of maps) {
        const values = table[map.stream];
        const fits = values?.length === map.layers.length && values[0]?.length === map.heads.length;
        map.measures = map.measures.filter(({ name }) => name !== "effect");
        if (!fits) continue;
        const remark = stale ? " (of the sentence before: being computed)" : "";
        map.measures.unshift({ name: "effect", unit: `nats that log p of the output loses without the head${remark}`, low: "it hurts", high: "it is needed", values });
      }
    },
  };
}
