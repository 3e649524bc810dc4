/** Numbers for each head, as `attnviz/analyses/measures`. */

/** @param {any} found @param {any} rows @param {any} columns @param {any} unicode @returns {any[]} */
export function measuresOf(found, rows, columns, unicode) {
  return [];
}
