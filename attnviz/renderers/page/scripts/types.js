/**
 * The shapes of what the modules hand to each other; comments only, left out of the page. Without an
 * import or export, so that every module knows them by name.
 *
 * @typedef {{text: string, gap: string, raw?: string, special?: boolean, label?: string, kind?: string,
 *   start?: number, end?: number}} Token start and end only in what a model answers
 * @typedef {{side: string, block: number, words: number[] | null, tokens: Token[]}} Axis
 * @typedef {{name: string, label?: string, unit: string, low: string, high: string, values: (number | null)[][]}} Measure null where it says
 *   nothing of a head
 * @typedef {{image: string, rows: number, columns: number, first: number}} Patches
 * @typedef {[number, string, number, string, number]} Link query position and token, key position
 *   and token, weight
 * @typedef {object} EffectLink
 * @property {[string, string]} ends query and key
 * @property {string} where
 * @property {[number, number, number, number] | null} place layer, head, row and column here
 * @property {[number, number, number | null]} numbers weight, effect as estimated and as measured
 * @typedef {object} PageMap
 * @property {string} blob start of the names of the elements that hold its weights
 * @property {string} stream
 * @property {string} lens how weights became these values; empty for the weights themselves
 * @property {string[]} layers
 * @property {string[]} heads
 * @property {"share" | "signed"} values
 * @property {string} unit
 * @property {[number, number]} limits the values at the two ends of the colour scale
 * @property {number} scale the value that the highest code stands for
 * @property {number} levels the highest code
 * @property {number} [power] of a code's share of the levels, if not 2; then weights are in base 85
 * @property {Axis} queries
 * @property {Axis} keys
 * @property {boolean} [compared] whether it is a difference of two, whose links are no model's
 * @property {number | null} sink the key that is a sink, if one is
 * @property {number[]} [groups] of each layer, how many neighbouring heads share keys and values
 * @property {[string, string, string] | null} focus layer, head and why
 * @property {Measure[]} measures
 * @property {Link[][][] | null} links of a pooled map, for each layer and head
 * @property {{title: string, links: EffectLink[]}[]} effects lists of links with their effects
 * @property {{size: number, scale: number, query_scale: number, key_scale: number, value_scale: number | null,
 *   writes_scale: number | null, effects_scale: number | null, besides: string, predicted: Record<string, string>} | null} projections
 * @property {{queries?: Patches, keys?: Patches}} patches
 *
 * @typedef {{light: string, dark: string, light_signed: string, dark_signed: string}} Scheme
 * @typedef {object} PageDocument
 * @property {string} title
 * @property {string} id
 * @property {string[]} texts what was read
 * @property {string} command
 * @property {string[]} notes
 * @property {[string, string][]} provenance
 * @property {Record<string, Scheme>} schemes
 * @property {{light: string[], dark: string[]}} head_colors
 * @property {PageMap[]} maps
 * @property {string} [precision] how exact weights are, where the model is packed
 * @property {string[]} [off] of an answer: what was switched off, in words
 * @property {string[]} [lenses] of a page that answers: what can be asked for
 * @property {string[]} [models]
 * @property {HistoryRun[]} [history] training runs whose samples the maps are
 * @property {Record<string, string>} [pictures] of models that read pictures alone: one to begin with, in base64
 * @property {Claim[]} [claims] what decided the answer
 * @property {{href: string, back: string, heads: Record<string, string[]>} | null} [atlas] where each head's card is, and the way back from there
 * @property {{link: (string | number)[], report: LinkReport}[]} [why] of a page that explains some links: stream, layer, head, query, key
 *
 * @typedef {[number, number]} Head places of its layer and of itself in the layer, from 0
 * @typedef {{row: number, column: number}} Cell a query and a key that are shown; -1: none
 *
 * @typedef {Token & {at: number, count: number, number: number, sink?: boolean}} ShownToken a token, word or block;
 *   `at` is the position of its first token, `number` its own: a word's among words
 * @typedef {object} ShownMatrix the matrix that is looked at
 * @property {string[]} [axes] what rows and columns are, where not queries and keys
 * @property {ShownToken[]} queries
 * @property {ShownToken[]} keys
 * @property {Float32Array} values row by row; NaN where there is none
 *
 * @typedef {object} Palette
 * @property {[number, number]} limits
 * @property {Uint8Array} table red, green, blue of each step, and of no value
 * @property {number} steps
 *
 * @typedef {object} State everything that the address remembers
 * @property {string} view
 * @property {number} map
 * @property {string} heads chosen heads as "layer.head,…"; empty for the one to see first
 * @property {string} mix "mean" or "max" of several heads
 * @property {string} unit "tokens" or "words"
 * @property {string} specials "keep", "drop" or "renormalise"
 * @property {string} colors
 * @property {string} range "auto", "shared" or "view"
 * @property {number} row pinned query; -1 for none
 * @property {number} column pinned key
 * @property {string} zoom "factor,left column,top row"
 * @property {number} least smallest weight that gets a line; below 0: chosen by the page
 * @property {string} direction "from": whom the word attends to; "to": who attends to it
 * @property {string} measure
 * @property {string} order "layout", "high" or "low"
 * @property {string} filter smallest value of the measure that is kept in sight; empty for any
 * @property {string} text of a page that answers: the sentence
 * @property {string} into its translation, where one is given
 * @property {string} text2 the sentence beside it
 * @property {string} into2
 * @property {string} beside "on": two sentences side by side; "difference": the second minus the first
 * @property {string} lens
 * @property {string} model
 * @property {string} to the target's language; "": guessed
 * @property {string} explain the token that a lens is about: "all", or its place from 1
 * @property {string} off what is switched off, see off.js
 * @property {string} word the number of the output that is explained, from 1
 * @property {number} tour the step that is shown; 0 for none
 *
 * @typedef {object} HistoryRun the samples of a training run
 * @property {string} name
 * @property {number[]} steps
 * @property {string[]} heads
 * @property {Record<string, {about: string, values: (number | null)[][]}>} measures by step and head
 * @property {{name: string, head: number, step: number, detail: string}[]} verdicts
 * @property {([number, number, number] | null)[][]} places by step and head: map, layer, head
 *
 * @typedef {object} Store
 * @property {State} state
 * @property {(changes: Partial<State>, same?: boolean) => void} set same: as part of the step before
 * @property {() => unknown} undo
 * @property {() => unknown} redo
 * @property {boolean} canUndo
 * @property {boolean} canRedo
 * @property {string[]} missing what the address asked for that is not here
 * @property {() => void} check the state by what has become known
 * @property {(listener: (changedNames: Set<string>) => void) => void} onChange
 *
 * @typedef {object} Scene what a view is asked to show
 * @property {PageMap} map
 * @property {Head[]} heads
 * @property {ShownMatrix} matrix
 * @property {number[]} links its cells that are worth a look first
 * @property {string} rests on what most rows rest
 * @property {ShownMatrix[]} separate each head's own matrix where a few are looked at side by side
 * @property {Palette} palette
 * @property {Scheme} scheme that the palette is made from
 * @property {State} state
 * @property {[number, number][]} cuts rows and columns of links that are cut
 *
 * @typedef {{text: string, gap: string, position: number | null, logp: number}} Piece of a translation, with its log p
 * @typedef {{language: string | null, to: string | null, written: string, pieces: Piece[],
 *   changed: {written: string, pieces: Piece[], total: number, effect: number} | null,
 *   notes: string[], seconds?: number}} Answer what a model says of a sentence
 * @typedef {object} Off what is switched off, by the names that the maps have
 * @property {[string, string, string][]} heads stream, layer, head
 * @property {[string, string, string, number, number][]} links and query, key
 * @property {[string, number][]} tokens side, position
 * @typedef {object} Question
 * @property {number} pane which of the sentences side by side
 * @property {string} source
 * @property {string | null} target null: the model writes it
 * @property {string} lens
 * @property {Off} off
 * @property {string} [model]
 * @property {string} [to] the target's language
 * @property {string | number} [explain] the token, from 1, that a lens is about
 * @property {string} [picture] a file in base64
 * @property {(string | number)[]} [link] stream, layer, head, query, key
 * @typedef {{id: number, pane?: number, kind?: string, error?: string, fatal?: boolean, dropped?: boolean, doing?: string, more?: boolean, question?: Question,
 *   document?: PageDocument, codes?: any, blobs?: any, answer?: Answer,
 *   stream?: string, values?: number[][], report?: LinkReport, steps?: LinkSteps, claims?: Claim[], notes?: string[]}} Reply
 * @typedef {{about: string, text: string, link: (string | number)[] | null,
 *   heads: (string | number)[][], tokens: [string, number][]}} Claim a sentence of `explain`, with
 *   the parts that it names; tokens by side and position
 * @typedef {object} LinkSteps one number of a map from query and key on: fields of Python's
 * @property {number[]} query
 * @property {number[]} key
 * @property {number[] | null} value null: not in the page
 * @property {number} factor
 * @property {number | null} position what it adds to the score
 * @property {number | null} cap
 * @property {(number | null)[]} scores of the row; null: hidden
 * @property {number[]} weights
 * @property {[string, number][] | null} changes of log p of each output without the link; null: not known
 * @property {boolean} [estimated] whether by slopes alone
 * @property {[string, number][] | null} [writes] logits that the link adds, where no report has them; null: not known
 * @property {string} [besides] what takes part in the weights too
 * @typedef {{writer: string, value: number, role: string}} WriterPart of a score: what one part of the model wrote
 * @typedef {{weight: number, contrast: number, against: string, query: WriterPart[],
 *   key: WriterPart[], position: number | null, at_distance: number | null,
 *   arguments: {token: string, logit: number}[], predicted: [string, number] | null,
 *   argument: number | null, rank: number | null,
 *   logit: number | null}} LinkReport fields of Python's
 * @typedef {object} Source where answers come from; older questions are forgotten
 * @property {(question: Question) => void} ask
 * @property {(question: Question) => void} heads ask for the effect of every head, in the background
 * @property {(question: any) => void} why ask why a link is there
 * @property {(question: any) => void} explain ask what decided a word
 * @property {() => void} cancel stop what is worked on, and forget what waits
 * @property {(listener: (reply: Reply) => void) => void} listen
 *
 * @typedef {CanvasRenderingContext2D} Surface
 * @typedef {{size?: number, weight?: string, color: string, align?: CanvasTextAlign, base?: CanvasTextBaseline}} Lettering of a text, size in CSS pixels
 * @typedef {{ink: string, faint: string, line: string, paper: string, accent: string,
 *   dark: boolean}} Theme
 * @typedef {ReturnType<typeof import("./readout.js").createReadout>} Readout
 * @typedef {object} View
 * @property {HTMLElement} element
 * @property {(scene: Scene) => void | Promise<void>} show
 * @property {(scene: Scene, width: number) => Drawing | Promise<Drawing>} figure the scene drawn so wide, for a file
 * @typedef {{palette: Palette, low: string, high: string, words: string, fading?: (share: number) => number}} Scale
 * @typedef {object} Drawing
 * @property {number} height in CSS pixels
 * @property {(surface: Surface) => void} paint
 * @property {{color: string, words: string}[]} [legend]
 * @property {Scale} [scale] of its colours
 */
