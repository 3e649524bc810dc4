/** Rows of a matrix that lies row by row, and sums. */

/**
 * A row, which shares its numbers with the matrix.
 * @template {Float64Array | Float32Array | Int16Array} Values
 * @param {Values} values @param {number} row @param {number} width @returns {Values}
 */
export const rowOf = (values, row, width) => /** @type {Values} */ (values.subarray(row * width, (row + 1) * width));

/** @param {{reduce: (add: (sum: number, value: number) => number, start: number) => number}} values */
export const sumOf = (values) => values.reduce((sum, value) => sum + value, 0);

/** The place of the largest. @param {Float64Array} numbers */
export const findLargest = (numbers) => numbers.indexOf(Math.max(...numbers));
