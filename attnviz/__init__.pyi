# Written by `python -m tests.stub` from the one list of options.
"""attnviz: see where a transformer looks, from the command line and from Python."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from attnviz.core.attention_map import Attention as Attention
from attnviz.core.attention_map import AttentionMap as AttentionMap
from attnviz.core.errors import AttnvizError as AttnvizError
from attnviz.cli.findings import Findings as Findings
from attnviz.core.attention_map import Focus as Focus
from attnviz.core.attention_map import Provenance as Provenance
from attnviz.runs.pipeline import Result as Result
from attnviz.core.attention_map import Token as Token
from attnviz.runs.watching import Watched as Watched
from attnviz.models.hugging_face import ablated as ablated
from attnviz import callbacks as callbacks
from attnviz.runs.pipeline import from_dict as from_dict
from attnviz.runs.pipeline import from_numpy as from_numpy
from attnviz.runs.pipeline import load as load
from attnviz.cli.functions import unload as unload
from attnviz.runs.watching import watch as watch
from attnviz.storage.texts import Text

__version__: str
__all__: list[str]

def ablate(
    text: Any = None,
    target: str | None = None, *,
    input: str | None = None,
    model: Any = None,
    tokenizer: Any = None,
    processor: Any = None,
    adapter: str | None = None,
    causal: bool = False,
    device: Literal['auto', 'cpu', 'cuda', 'mps'] = 'auto',
    device_map: Literal['auto', 'balanced', 'sequential'] | None = None,
    dtype: Literal['float32', 'float64', 'float16', 'bfloat16'] | None = None,
    revision: str | None = None,
    allow_pickle: bool = False,
    allow_code: bool = False,
    chat: bool = False,
    to: Literal['en', 'fr'] | None = None,
    layer: str | None | int | Sequence[int] = None,
    heads: Sequence[str | tuple[str | int, ...]] | None = None,
    links: Sequence[str | tuple[str | int, ...]] | None = None,
    tokens: Sequence[str | tuple[str | int, ...]] | None = None,
    each: Literal['heads', 'layers', 'links', 'tokens'] | None = None,
    by: Literal['zero', 'mean', 'resample'] = 'zero',
    reference: str | None = None,
    seed: int = 0,
    explain: str | None = None,
    top: int = 10,
    bars: Path | None | str = None,
    grid: Path | None | str = None,
    highlight: Path | None | str = None,
    output: Path | None | str = None,
    max_rows: int = 500,
    columns: str | None = None,
    input_format: Literal['txt', 'jsonl', 'csv', 'tsv'] | None = None,
    max_line: int = 64,
    on_error: Literal['skip', 'stop'] = 'skip',
    rejects: Path | None | str = None,
) -> Findings:
    """Show what changes when heads, links or tokens are switched off.

    Options:
        text: Text, or the source text of a pair.
        target: Target text of a pair.
        input: Read texts from a file: .txt (one a line), .jsonl, .csv, .tsv, each also .gz; - is stdin.
        model: Model of transformers, its name or folder, or a shipped one ('pocket').
        adapter: Adapter (LoRA and others, peft) to merge into --model, by default the one it names.
        causal: Causal mask: hide every later token.
        device: auto, cpu, cuda or mps.
        device_map: How to spread a model that is larger than one device: auto, balanced or sequential (needs accelerate).
        dtype: Precision: float32, float64, float16 or bfloat16; on a CPU float32.
        revision: Branch, tag or commit of a model on the hub.
        allow_pickle: Load pickled weights, of a model that you trust.
        allow_code: Run code that comes with a model, if you trust it.
        chat: Read the text as a user's turn, by the model's chat template.
        to: Language of the target for the pocket model: en or fr.
        layer: Layers to switch off: 2, 0-3, last, all, encoder.2; with --head 3 those of that head.
        heads: Heads to switch off: 2.3 is head 3 of layer 2; also 2.3,2.4, encoder.2.3, or 3 or 0-3 of each layer chosen. Repeatable.
        links: Link to cut in all heads: "rouge>red", "encoder:the>cat". Repeatable.
        tokens: Token or word to hide from all others: red, or red[3] if there are several. Repeatable.
        each: Switch off all heads, layers, links or tokens, one after the other.
        by: What replaces a head's output: zero, mean or resample. mean is over the positions of the text, or of --reference; resample draws from --reference.
        reference: Texts whose positions --by mean and resample use.
        seed: Seed of --by resample.
        explain: The output to explain: a class; a token by its text (red, red[3]) or number from 0; next:WORD, a possible next token; or all, each token predicted from those before it. Effects explain all by default.
        top: How many effects the table lists.
        bars: Effects as bars: .png, .svg or .pdf.
        grid: All heads coloured by effect, as a picture; needs --each heads.
        highlight: Text coloured by effect; needs --each tokens.
        output: Data file, whose suffix names the format: .csv, .json, .jsonl, .npz, .tsv, .txt. An existing FILE is replaced.
        max_rows: Rows that a table shows at most; 0 shows all.
        columns: Columns of a .csv or .tsv, by name or number: text=sentence,id=key.
        input_format: Format of the input if its suffix does not tell: txt, jsonl, csv or tsv. stdin is txt by default.
        max_line: Longest line to read, in MiB.
        on_error: What to do about a line that fails: skip or stop. skip notes it and goes on.
        rejects: File for lines that failed, with reasons: .jsonl.
        tokenizer: What reads the texts of a model that is given itself.
        processor: What reads the pictures of a model that is given itself.
    """

def align(
    file: Any = '-', *,
    model: Any = None,
    tokenizer: Any = None,
    processor: Any = None,
    adapter: str | None = None,
    device: Literal['auto', 'cpu', 'cuda', 'mps'] = 'auto',
    device_map: Literal['auto', 'balanced', 'sequential'] | None = None,
    dtype: Literal['float32', 'float64', 'float16', 'bfloat16'] | None = None,
    revision: str | None = None,
    allow_pickle: bool = False,
    allow_code: bool = False,
    to: Literal['en', 'fr'] | None = None,
    symmetrize: Literal['forward', 'reverse', 'intersection', 'union', 'grow-diag-final', 'grow-diag-final-and', 'product'] | None = None,
    against: Literal['input', 'output'] = 'input',
    max_size: int | None = None,
    layer: str | None | int | Sequence[int] = None,
    head: str | None | int | Sequence[int] = None,
    score: Path | None | str = None,
    output: Path | None | str = None,
    max_rows: int = 500,
    columns: str | None = None,
    input_format: Literal['txt', 'jsonl', 'csv', 'tsv'] | None = None,
    max_line: int = 64,
    on_error: Literal['skip', 'stop'] = 'skip',
    rejects: Path | None | str = None,
    batch_size: int | None = None,
    workers: int | None = None,
    engine: Literal['local', 'ray'] = 'local',
    ray_address: str | None = None,
) -> Findings:
    """Align the words of sentence pairs.

    Options:
        file: Pairs: .tsv, .txt (tab or ||| between), .jsonl or .csv, also .gz; - reads stdin.
        model: Model of transformers, its name or folder, or a shipped one ('pocket').
        adapter: Adapter (LoRA and others, peft) to merge into --model, by default the one it names.
        device: auto, cpu, cuda or mps.
        device_map: How to spread a model that is larger than one device: auto, balanced or sequential (needs accelerate).
        dtype: Precision: float32, float64, float16 or bfloat16; on a CPU float32.
        revision: Branch, tag or commit of a model on the hub.
        allow_pickle: Load pickled weights, of a model that you trust.
        allow_code: Run code that comes with a model, if you trust it.
        to: Language of the target for the pocket model: en or fr.
        symmetrize: How two directions are joined: forward, reverse, intersection, union, grow-diag-final, grow-diag-final-and or product.
        against: Whether a decoder row stands for the token it reads (input) or predicts (output).
        max_size: Rows and columns of a map at most; a longer text is shown in blocks of tokens. Default 1024, or fewer if many heads would fill the memory.
        layer: Layers from 0: 3, 0,2, 0-3, last or all.
        head: Heads: 2.3 is head 3 of layer 2, 2.3,2.4 are two; or 3, 0,2, 0-3, last or all, in each layer chosen.
        score: Correct links, a line a pair (0-0 sure, 1?1 possible), to score every layer and head.
        output: Data file, whose suffix names the format: .csv, .json, .jsonl, .tsv, .txt. An existing FILE is replaced.
        max_rows: Rows that a table shows at most; 0 shows all.
        columns: Columns of a .csv or .tsv, by name or number: text=sentence,id=key.
        input_format: Format of the input if its suffix does not tell: txt, jsonl, csv or tsv. stdin is txt by default.
        max_line: Longest line to read, in MiB.
        on_error: What to do about a line that fails: skip or stop. skip notes it and goes on.
        rejects: File for lines that failed, with reasons: .jsonl.
        batch_size: Texts that the model reads at once, at most; by default as many as fit.
        workers: Processes that share the work.
        engine: What runs the workers: local or ray (ray needs the extra ray).
        ray_address: Ray cluster to join; else one is started.
        tokenizer: What reads the texts of a model that is given itself.
        processor: What reads the pictures of a model that is given itself.
    """

def attend(
    text: str,
    target: str | None = None, *,
    command: Literal['self', 'cross', 'co'] | None = None,
    model: Any = None,
    tokenizer: Any = None,
    processor: Any = None,
    adapter: str | None = None,
    mechanism: str | None = None,
    weights: Path | None | str = None,
    qk: Path | None | str = None,
    causal: bool = False,
    seed: int = 0,
    device: Literal['auto', 'cpu', 'cuda', 'mps'] = 'auto',
    device_map: Literal['auto', 'balanced', 'sequential'] | None = None,
    dtype: Literal['float32', 'float64', 'float16', 'bfloat16'] | None = None,
    revision: str | None = None,
    allow_pickle: bool = False,
    allow_code: bool = False,
    generate: int | None = None,
    chat: bool = False,
    keep_qk: bool = False,
    channels: str = 'mean',
    max_size: int | None = None,
    rows: str | None = None,
    window: str | None = None,
    top: int = 20,
    to: Literal['en', 'fr'] | None = None,
    lens: str = 'raw',
    explain: str | None = None,
    check: int = 20,
    stream: str | None = None,
    layer: str | None | int | Sequence[int] = None,
    head: str | None | int | Sequence[int] = None,
    reduce: Literal['none', 'mean', 'max'] = 'none',
    over: Literal['both', 'heads', 'layers'] = 'both',
    labels: str | None | Sequence[str] = None,
    special: Literal['keep', 'drop', 'renormalise'] = 'keep',
    group: str | None = None,
    words: bool = False,
) -> Result:
    """The attention of a text over itself or, with a target, of the target over the text.

    Args:
        text: the text; with a target, the source whose tokens are the keys.
        target: the text whose tokens are the queries.
        options: those of the shell, by name; `model` may be a model of transformers with its
            `tokenizer` (it is left as it is), and `command` "cross", to let the model write the
            target itself, or "co".

    Returns:
        `.weights` (layers, heads, queries, keys), `.tokens`, `.maps`, `.heatmap()`, `.grid()`,
        `.page()`, `.save()`, `.select()`.

    Raises:
        AttnvizError: what the shell would say in one line.

    Options:
        model: Model of transformers, its name or folder, or a shipped one ('pocket').
        adapter: Adapter (LoRA and others, peft) to merge into --model, by default the one it names.
        mechanism: An untrained layer: linear, or linear:heads=4,size=64,seed=0 ('attnviz mechanisms').
        weights: Attention from a file: your own matrices or a saved map (.npz, .safetensors, .json).
        qk: Queries and keys that another program dumped (.npz, .safetensors, .json).
        causal: Causal mask: hide every later token.
        seed: Seed of random inputs for --weights.
        device: auto, cpu, cuda or mps.
        device_map: How to spread a model that is larger than one device: auto, balanced or sequential (needs accelerate).
        dtype: Precision: float32, float64, float16 or bfloat16; on a CPU float32.
        revision: Branch, tag or commit of a model on the hub.
        allow_pickle: Load pickled weights, of a model that you trust.
        allow_code: Run code that comes with a model, if you trust it.
        generate: Let the model write N tokens at most, and show them with the text.
        chat: Read the text as a user's turn, by the model's chat template.
        keep_qk: Keep queries and keys, for the query · key view of --html and --open.
        channels: Channels of layers that mix them singly (Mamba, RWKV): mean, all, 3, 0,2 or 0-3.
        max_size: Rows and columns of a map at most; a longer text is shown in blocks of tokens. Default 1024, or fewer if many heads would fill the memory.
        rows: Only tokens A to B as rows, counted from 0: exact.
        window: Only tokens A to B as rows and columns.
        top: Strongest links that -f links lists, without special tokens and the diagonal. In a text shown in blocks each head is searched for them; 0 skips that.
        to: Language of the target for the pocket model: en or fr.
        lens: What to compute from the weights: raw, rollout, flow, gradient, effect, norm or all (all lenses side by side).
        explain: The output to explain: a class; a token by its text (red, red[3]) or number from 0; next:WORD, a possible next token; or all, each token predicted from those before it. Effects explain all by default.
        check: Links of --lens effect to measure, by cutting each, beside the estimates.
        stream: One stream: encoder, decoder, cross, …
        layer: Layers from 0: 3, 0,2, 0-3, last or all.
        head: Heads: 2.3 is head 3 of layer 2, 2.3,2.4 are two; or 3, 0,2, 0-3, last or all, in each layer chosen.
        reduce: Combine heads and layers: none, mean or max.
        over: What --reduce combines: both, heads or layers.
        labels: A label for each token or word, O for none: "B-PER O O".
        special: Special tokens, such as [CLS]: keep, drop or renormalise (drop, then scale rows to sum to 1).
        group: Merge tokens into words, sentences, or the pieces that a file lists, one a line.
        words: Merge the tokens of each word; short for --group words.
        tokenizer: What reads the texts of a model that is given itself.
        processor: What reads the pictures of a model that is given itself.
    """

def attend_many(
    texts: Iterable[str | tuple[str, str | None] | Text], *,
    batch_size: int | None = None,
    workers: int | None = None,
    command: Literal['self', 'cross', 'co'] | None = None,
    model: Any = None,
    tokenizer: Any = None,
    processor: Any = None,
    adapter: str | None = None,
    mechanism: str | None = None,
    weights: Path | None | str = None,
    qk: Path | None | str = None,
    causal: bool = False,
    seed: int = 0,
    device: Literal['auto', 'cpu', 'cuda', 'mps'] = 'auto',
    device_map: Literal['auto', 'balanced', 'sequential'] | None = None,
    dtype: Literal['float32', 'float64', 'float16', 'bfloat16'] | None = None,
    revision: str | None = None,
    allow_pickle: bool = False,
    allow_code: bool = False,
    generate: int | None = None,
    chat: bool = False,
    keep_qk: bool = False,
    channels: str = 'mean',
    max_size: int | None = None,
    rows: str | None = None,
    window: str | None = None,
    top: int = 20,
    to: Literal['en', 'fr'] | None = None,
    lens: str = 'raw',
    explain: str | None = None,
    check: int = 20,
    stream: str | None = None,
    layer: str | None | int | Sequence[int] = None,
    head: str | None | int | Sequence[int] = None,
    reduce: Literal['none', 'mean', 'max'] = 'none',
    over: Literal['both', 'heads', 'layers'] = 'both',
    labels: str | None | Sequence[str] = None,
    special: Literal['keep', 'drop', 'renormalise'] = 'keep',
    group: str | None = None,
    words: bool = False,
) -> Iterator[Result | AttnvizError]:
    """The attention of each text or pair in order, or in its place why there is none.

    Texts are read together, as the shell reads those of a file; options are those of `attend`.

    Options:
        model: Model of transformers, its name or folder, or a shipped one ('pocket').
        adapter: Adapter (LoRA and others, peft) to merge into --model, by default the one it names.
        mechanism: An untrained layer: linear, or linear:heads=4,size=64,seed=0 ('attnviz mechanisms').
        weights: Attention from a file: your own matrices or a saved map (.npz, .safetensors, .json).
        qk: Queries and keys that another program dumped (.npz, .safetensors, .json).
        causal: Causal mask: hide every later token.
        seed: Seed of random inputs for --weights.
        device: auto, cpu, cuda or mps.
        device_map: How to spread a model that is larger than one device: auto, balanced or sequential (needs accelerate).
        dtype: Precision: float32, float64, float16 or bfloat16; on a CPU float32.
        revision: Branch, tag or commit of a model on the hub.
        allow_pickle: Load pickled weights, of a model that you trust.
        allow_code: Run code that comes with a model, if you trust it.
        generate: Let the model write N tokens at most, and show them with the text.
        chat: Read the text as a user's turn, by the model's chat template.
        keep_qk: Keep queries and keys, for the query · key view of --html and --open.
        channels: Channels of layers that mix them singly (Mamba, RWKV): mean, all, 3, 0,2 or 0-3.
        max_size: Rows and columns of a map at most; a longer text is shown in blocks of tokens. Default 1024, or fewer if many heads would fill the memory.
        rows: Only tokens A to B as rows, counted from 0: exact.
        window: Only tokens A to B as rows and columns.
        top: Strongest links that -f links lists, without special tokens and the diagonal. In a text shown in blocks each head is searched for them; 0 skips that.
        to: Language of the target for the pocket model: en or fr.
        lens: What to compute from the weights: raw, rollout, flow, gradient, effect, norm or all (all lenses side by side).
        explain: The output to explain: a class; a token by its text (red, red[3]) or number from 0; next:WORD, a possible next token; or all, each token predicted from those before it. Effects explain all by default.
        check: Links of --lens effect to measure, by cutting each, beside the estimates.
        stream: One stream: encoder, decoder, cross, …
        layer: Layers from 0: 3, 0,2, 0-3, last or all.
        head: Heads: 2.3 is head 3 of layer 2, 2.3,2.4 are two; or 3, 0,2, 0-3, last or all, in each layer chosen.
        reduce: Combine heads and layers: none, mean or max.
        over: What --reduce combines: both, heads or layers.
        labels: A label for each token or word, O for none: "B-PER O O".
        special: Special tokens, such as [CLS]: keep, drop or renormalise (drop, then scale rows to sum to 1).
        group: Merge tokens into words, sentences, or the pieces that a file lists, one a line.
        words: Merge the tokens of each word; short for --group words.
        tokenizer: What reads the texts of a model that is given itself.
        processor: What reads the pictures of a model that is given itself.
    """

def audio(
    file: Any = None, *,
    text: str | None = None,
    language: str | None = None,
    task: Literal['transcribe', 'translate'] | None = None,
    start: float = 0.0,
    seconds: int = 30,
    model: Any = None,
    tokenizer: Any = None,
    processor: Any = None,
    adapter: str | None = None,
    device: Literal['auto', 'cpu', 'cuda', 'mps'] = 'auto',
    device_map: Literal['auto', 'balanced', 'sequential'] | None = None,
    dtype: Literal['float32', 'float64', 'float16', 'bfloat16'] | None = None,
    revision: str | None = None,
    allow_pickle: bool = False,
    allow_code: bool = False,
    word_times: bool = False,
    times: Path | None | str = None,
    timing_heads: str | None = None,
    against: Literal['input', 'output'] = 'output',
    max_size: int | None = None,
    stream: str | None = None,
    layer: str | None | int | Sequence[int] = None,
    head: str | None | int | Sequence[int] = None,
    reduce: Literal['none', 'mean', 'max'] = 'none',
    over: Literal['both', 'heads', 'layers'] = 'both',
    special: Literal['keep', 'drop', 'renormalise'] = 'keep',
    group: str | None = None,
    words: bool = False,
    top: int = 20,
    output: Path | None | str = None,
    heatmap: Path | None | str = None,
    grid: Path | None | str = None,
    width: Literal['single', 'double'] | None = None,
    lines: Path | None | str = None,
    html: Path | None | str = None,
    overwrite: bool = False,
    max_rows: int = 500,
) -> Iterator[Result | AttnvizError]:
    """Show when a speech model listens, and when each word is spoken.

    Options:
        file: Recording: .wav, .flac, .ogg, .mp3, ….
        text: What is spoken; without it a model like Whisper writes it.
        language: Spoken language (en, french), if the model knows several; default: it decides.
        task: Task for such a model: transcribe or translate (into English).
        start: Where in the recording to begin.
        seconds: How many seconds to read at most; Whisper reads 30, AST 10.
        model: Model of transformers, its name or folder, or a shipped one ('pocket').
        adapter: Adapter (LoRA and others, peft) to merge into --model, by default the one it names.
        device: auto, cpu, cuda or mps.
        device_map: How to spread a model that is larger than one device: auto, balanced or sequential (needs accelerate).
        dtype: Precision: float32, float64, float16 or bfloat16; on a CPU float32.
        revision: Branch, tag or commit of a model on the hub.
        allow_pickle: Load pickled weights, of a model that you trust.
        allow_code: Run code that comes with a model, if you trust it.
        word_times: When each word is spoken, by the heads that the model names.
        times: True times of words (.tsv: word, start, end; .TextGrid; .vtt), to see how heads err.
        timing_heads: Heads that time the words: 2.0,3.1.
        against: Whether a row times the token that it predicts (output) or has read (input).
        max_size: Rows and columns of a map at most; a longer text is shown in blocks of tokens. Default 1024, or fewer if many heads would fill the memory.
        stream: One stream: encoder, decoder, cross, …
        layer: Layers from 0: 3, 0,2, 0-3, last or all.
        head: Heads: 2.3 is head 3 of layer 2, 2.3,2.4 are two; or 3, 0,2, 0-3, last or all, in each layer chosen.
        reduce: Combine heads and layers: none, mean or max.
        over: What --reduce combines: both, heads or layers.
        special: Special tokens, such as [CLS]: keep, drop or renormalise (drop, then scale rows to sum to 1).
        group: Merge tokens into words, sentences, or the pieces that a file lists, one a line.
        words: Merge the tokens of each word; short for --group words.
        top: Strongest links that -f links lists, without special tokens and the diagonal. In a text shown in blocks each head is searched for them; 0 skips that.
        output: Data file, whose suffix names the format: .csv, .json, .jsonl, .npz, .parquet, .textgrid, .tsv, .txt, .vtt. An existing FILE is replaced.
        heatmap: One attention matrix as a picture: .png, .svg or .pdf.
        grid: All heads side by side as a picture: .png, .svg or .pdf.
        width: Draw for a paper's column, single or double (85 or 178 mm wide), with text at its usual size.
        lines: Tokens joined by lines as a picture, up to eight heads in colours: .png, .svg or .pdf.
        html: Everything as one interactive page: .html; of several texts FILE-0, FILE-1, …
        overwrite: Replace FILE-0, … of other programs, too.
        max_rows: Rows that a table shows at most; 0 shows all.
        tokenizer: What reads the texts of a model that is given itself.
        processor: What reads the pictures of a model that is given itself.
    """

def compare(
    a: Any = None,
    b: str | None = None, *,
    model_a: str | None = None,
    model_b: str | None = None,
    revision_a: str | None = None,
    revision_b: str | None = None,
    adapter_a: str | None = None,
    adapter_b: str | None = None,
    model: Any = None,
    tokenizer: Any = None,
    processor: Any = None,
    adapter: str | None = None,
    mechanism: str | None = None,
    causal: bool = False,
    device: Literal['auto', 'cpu', 'cuda', 'mps'] = 'auto',
    device_map: Literal['auto', 'balanced', 'sequential'] | None = None,
    dtype: Literal['float32', 'float64', 'float16', 'bfloat16'] | None = None,
    revision: str | None = None,
    allow_pickle: bool = False,
    allow_code: bool = False,
    generate: int | None = None,
    chat: bool = False,
    layer_a: str | None = None,
    layer_b: str | None = None,
    head_a: str | None = None,
    head_b: str | None = None,
    max_size: int | None = None,
    lens: Literal['raw', 'rollout', 'flow', 'gradient', 'effect', 'norm', 'all'] = 'raw',
    explain: str | None = None,
    check: int = 20,
    stream: str | None = None,
    layer: str | None | int | Sequence[int] = None,
    head: str | None | int | Sequence[int] = None,
    reduce: Literal['none', 'mean', 'max'] = 'none',
    over: Literal['both', 'heads', 'layers'] = 'both',
    special: Literal['keep', 'drop', 'renormalise'] = 'keep',
    group: str | None = None,
    words: bool = False,
    top: int = 10,
    fail_above: float | None = None,
    output: Path | None | str = None,
    heatmap: Path | None | str = None,
    grid: Path | None | str = None,
    width: Literal['single', 'double'] | None = None,
    max_rows: int = 500,
) -> Findings:
    """Show what changed between two attentions.

    Options:
        a: A text, a saved map (.npz, .json, .safetensors), or saved effects (.npz, .json).
        b: The other side; default: A with other options.
        model_a: Model of A, instead of --model.
        model_b: Model of B, instead of --model.
        revision_a: Revision of A's model.
        revision_b: Revision of B's model.
        adapter_a: Adapter of A's model.
        adapter_b: Adapter of B's model.
        model: Model of transformers, its name or folder, or a shipped one ('pocket').
        adapter: Adapter (LoRA and others, peft) to merge into --model, by default the one it names.
        mechanism: An untrained layer: linear, or linear:heads=4,size=64,seed=0 ('attnviz mechanisms').
        causal: Causal mask: hide every later token.
        device: auto, cpu, cuda or mps.
        device_map: How to spread a model that is larger than one device: auto, balanced or sequential (needs accelerate).
        dtype: Precision: float32, float64, float16 or bfloat16; on a CPU float32.
        revision: Branch, tag or commit of a model on the hub.
        allow_pickle: Load pickled weights, of a model that you trust.
        allow_code: Run code that comes with a model, if you trust it.
        generate: Let the model write N tokens at most, and show them with the text.
        chat: Read the text as a user's turn, by the model's chat template.
        layer_a: Layers of A, instead of --layer.
        layer_b: Layers of B, instead of --layer.
        head_a: Heads of A, instead of --head.
        head_b: Heads of B, instead of --head.
        max_size: Rows and columns of a map at most; a longer text is shown in blocks of tokens. Default 1024, or fewer if many heads would fill the memory.
        lens: What to compute from the weights: raw, rollout, flow, gradient, effect, norm or all (all lenses side by side).
        explain: The output to explain: a class; a token by its text (red, red[3]) or number from 0; next:WORD, a possible next token; or all, each token predicted from those before it. Effects explain all by default.
        check: Links of --lens effect to measure, by cutting each, beside the estimates.
        stream: One stream: encoder, decoder, cross, …
        layer: Layers from 0: 3, 0,2, 0-3, last or all.
        head: Heads: 2.3 is head 3 of layer 2, 2.3,2.4 are two; or 3, 0,2, 0-3, last or all, in each layer chosen.
        reduce: Combine heads and layers: none, mean or max.
        over: What --reduce combines: both, heads or layers.
        special: Special tokens, such as [CLS]: keep, drop or renormalise (drop, then scale rows to sum to 1).
        group: Merge tokens into words, sentences, or the pieces that a file lists, one a line.
        words: Merge the tokens of each word; short for --group words.
        top: How many heads and links to name.
        fail_above: Exit with 1 if a head's divergence (0: none, 0.693: all) or an effect's change is larger.
        output: Data file, whose suffix names the format: .csv, .json, .jsonl, .npz, .tsv, .txt. An existing FILE is replaced.
        heatmap: One attention matrix as a picture: .png, .svg or .pdf.
        grid: All heads side by side as a picture: .png, .svg or .pdf.
        width: Draw for a paper's column, single or double (85 or 178 mm wide), with text at its usual size.
        max_rows: Rows that a table shows at most; 0 shows all.
        tokenizer: What reads the texts of a model that is given itself.
        processor: What reads the pictures of a model that is given itself.
    """

def corpus(
    file: Any = None,
    more: list[str] | None = None, *,
    cross: bool = False,
    model: Any = None,
    tokenizer: Any = None,
    processor: Any = None,
    adapter: str | None = None,
    mechanism: str | None = None,
    causal: bool = False,
    device: Literal['auto', 'cpu', 'cuda', 'mps'] = 'auto',
    device_map: Literal['auto', 'balanced', 'sequential'] | None = None,
    dtype: Literal['float32', 'float64', 'float16', 'bfloat16'] | None = None,
    revision: str | None = None,
    allow_pickle: bool = False,
    allow_code: bool = False,
    to: Literal['en', 'fr'] | None = None,
    show: Literal['measures', 'positions', 'classes', 'pairs', 'links'] = 'measures',
    sort: Literal['role', 'layer', 'entropy', 'relative-entropy', 'span', 'confidence', 'mass', 'empty', 'distance', 'offset', 'patch-distance', 'previous-token', 'next-token', 'self', 'same-token', 'first-token', 'special-token', 'punctuation', 'sink', 'induction', 'duplicate', 'effect'] = 'role',
    effect: bool = False,
    by: Literal['zero', 'mean'] = 'zero',
    top: int | None = None,
    frequencies: Path | None | str = None,
    max_size: int | None = None,
    stream: str | None = None,
    layer: str | None | int | Sequence[int] = None,
    head: str | None | int | Sequence[int] = None,
    special: Literal['keep', 'drop', 'renormalise'] = 'keep',
    overview: Path | None | str = None,
    prune_curve: Path | None | str = None,
    atlas: Path | None | str = None,
    output: Path | None | str = None,
    max_rows: int = 500,
    columns: str | None = None,
    input_format: Literal['txt', 'jsonl', 'csv', 'tsv'] | None = None,
    max_line: int = 64,
    on_error: Literal['skip', 'stop'] = 'skip',
    rejects: Path | None | str = None,
    batch_size: int | None = None,
    workers: int | None = None,
    engine: Literal['local', 'ray'] = 'local',
    ray_address: str | None = None,
    resume: bool = False,
) -> Findings:
    """Show what each head does over a whole corpus.

    Options:
        file: Texts: .txt (one a line), .jsonl, .csv or .tsv; - is stdin. Or a picture, or a folder of pictures.
        more: Further pictures and folders.
        cross: The texts are pairs: measure how each target attends to its source.
        model: Model of transformers, its name or folder, or a shipped one ('pocket').
        adapter: Adapter (LoRA and others, peft) to merge into --model, by default the one it names.
        mechanism: An untrained layer: linear, or linear:heads=4,size=64,seed=0 ('attnviz mechanisms').
        causal: Causal mask: hide every later token.
        device: auto, cpu, cuda or mps.
        device_map: How to spread a model that is larger than one device: auto, balanced or sequential (needs accelerate).
        dtype: Precision: float32, float64, float16 or bfloat16; on a CPU float32.
        revision: Branch, tag or commit of a model on the hub.
        allow_pickle: Load pickled weights, of a model that you trust.
        allow_code: Run code that comes with a model, if you trust it.
        to: Language of the target for the pocket model: en or fr.
        show: What tables and rows hold: measures, positions, classes, pairs or links. json and npz always hold everything.
        sort: Order of the heads: role (clearest first), layer, or a measure (largest first).
        effect: Switch off each head by itself and measure the drop in log p of the output, in nats.
        by: What replaces a head that is off: zero or mean.
        top: How many heads to list, in the order of --sort; by default all.
        frequencies: How frequent words are: word, tab, count on each line. By default counted in the texts.
        max_size: Rows and columns of a map at most; a longer text is shown in blocks of tokens. Default 1024, or fewer if many heads would fill the memory.
        stream: One stream: encoder, decoder, cross, …
        layer: Layers from 0: 3, 0,2, 0-3, last or all.
        head: Heads: 2.3 is head 3 of layer 2, 2.3,2.4 are two; or 3, 0,2, 0-3, last or all, in each layer chosen.
        special: Special tokens, such as [CLS]: keep, drop or renormalise (drop, then scale rows to sum to 1).
        overview: Every head's positions, classes and measures as a picture: .png, .svg or .pdf.
        prune_curve: The loss while heads are switched off one after another, as a picture; needs --effect.
        atlas: Page to browse all heads, with texts in which each attends strongly, usually, weakly.
        output: Data file, whose suffix names the format: .csv, .json, .jsonl, .npz, .tsv, .txt. An existing FILE is replaced.
        max_rows: Rows that a table shows at most; 0 shows all.
        columns: Columns of a .csv or .tsv, by name or number: text=sentence,id=key.
        input_format: Format of the input if its suffix does not tell: txt, jsonl, csv or tsv. stdin is txt by default.
        max_line: Longest line to read, in MiB.
        on_error: What to do about a line that fails: skip or stop. skip notes it and goes on.
        rejects: File for lines that failed, with reasons: .jsonl.
        batch_size: Texts that the model reads at once, at most; by default as many as fit.
        workers: Processes that share the work.
        engine: What runs the workers: local or ray (ray needs the extra ray).
        ray_address: Ray cluster to join; else one is started.
        resume: Continue an interrupted run that has the same -o FILE.
        tokenizer: What reads the texts of a model that is given itself.
        processor: What reads the pictures of a model that is given itself.
    """

def heads(
    text: Any = None, *,
    input: str | None = None,
    cross: bool = False,
    no_repeat: bool = False,
    treebank: str | None = None,
    model: Any = None,
    tokenizer: Any = None,
    processor: Any = None,
    adapter: str | None = None,
    mechanism: str | None = None,
    weights: Path | None | str = None,
    qk: Path | None | str = None,
    causal: bool = False,
    seed: int = 0,
    device: Literal['auto', 'cpu', 'cuda', 'mps'] = 'auto',
    device_map: Literal['auto', 'balanced', 'sequential'] | None = None,
    dtype: Literal['float32', 'float64', 'float16', 'bfloat16'] | None = None,
    revision: str | None = None,
    allow_pickle: bool = False,
    allow_code: bool = False,
    to: Literal['en', 'fr'] | None = None,
    role: Literal['previous-token', 'next-token', 'self', 'same-token', 'first-token', 'special-token', 'punctuation', 'induction', 'duplicate'] | None = None,
    sort: Literal['role', 'layer', 'entropy', 'relative-entropy', 'span', 'confidence', 'mass', 'empty', 'distance', 'offset', 'patch-distance', 'previous-token', 'next-token', 'self', 'same-token', 'first-token', 'special-token', 'punctuation', 'sink', 'induction', 'duplicate', 'effect'] = 'role',
    effect: bool = False,
    by: Literal['zero', 'mean'] = 'zero',
    similar: bool = False,
    max_size: int | None = None,
    stream: str | None = None,
    layer: str | None | int | Sequence[int] = None,
    head: str | None | int | Sequence[int] = None,
    special: Literal['keep', 'drop', 'renormalise'] = 'keep',
    overview: Path | None | str = None,
    scatter: Path | None | str = None,
    output: Path | None | str = None,
    max_rows: int = 500,
    columns: str | None = None,
    input_format: Literal['txt', 'jsonl', 'csv', 'tsv'] | None = None,
    max_line: int = 64,
    on_error: Literal['skip', 'stop'] = 'skip',
    rejects: Path | None | str = None,
    batch_size: int | None = None,
    workers: int | None = None,
    engine: Literal['local', 'ray'] = 'local',
    ray_address: str | None = None,
) -> Findings:
    """Show what each head does.

    Options:
        text: Texts, each in quotes; - reads stdin.
        input: Read texts from a file: .txt (one a line), .jsonl, .csv, .tsv, each also .gz; - is stdin.
        cross: The texts are pairs: measure how each target attends to its source.
        no_repeat: Skip the second run over repeated random words, which induction is measured on.
        treebank: Sentences with dependencies (.conllu), to show which head finds which relation.
        model: Model of transformers, its name or folder, or a shipped one ('pocket').
        adapter: Adapter (LoRA and others, peft) to merge into --model, by default the one it names.
        mechanism: An untrained layer: linear, or linear:heads=4,size=64,seed=0 ('attnviz mechanisms').
        weights: Attention from a file: your own matrices or a saved map (.npz, .safetensors, .json).
        qk: Queries and keys that another program dumped (.npz, .safetensors, .json).
        causal: Causal mask: hide every later token.
        seed: Seed of random inputs for --weights.
        device: auto, cpu, cuda or mps.
        device_map: How to spread a model that is larger than one device: auto, balanced or sequential (needs accelerate).
        dtype: Precision: float32, float64, float16 or bfloat16; on a CPU float32.
        revision: Branch, tag or commit of a model on the hub.
        allow_pickle: Load pickled weights, of a model that you trust.
        allow_code: Run code that comes with a model, if you trust it.
        to: Language of the target for the pocket model: en or fr.
        role: Only heads with this role: previous-token, next-token, self, same-token, first-token, special-token, punctuation, induction or duplicate.
        sort: Order of the heads: role (clearest first), layer, or a measure (largest first).
        effect: Switch off each head by itself and measure the drop in log p of the output, in nats.
        by: What replaces a head that is off: zero or mean.
        similar: Show instead which heads attend alike, by Jensen-Shannon divergence.
        max_size: Rows and columns of a map at most; a longer text is shown in blocks of tokens. Default 1024, or fewer if many heads would fill the memory.
        stream: One stream: encoder, decoder, cross, …
        layer: Layers from 0: 3, 0,2, 0-3, last or all.
        head: Heads: 2.3 is head 3 of layer 2, 2.3,2.4 are two; or 3, 0,2, 0-3, last or all, in each layer chosen.
        special: Special tokens, such as [CLS]: keep, drop or renormalise (drop, then scale rows to sum to 1).
        overview: Roles and measures of all heads as a picture: .png, .svg or .pdf.
        scatter: Heads in a plane as a picture, close if they attend alike.
        output: Data file, whose suffix names the format: .csv, .json, .jsonl, .tsv, .txt. An existing FILE is replaced.
        max_rows: Rows that a table shows at most; 0 shows all.
        columns: Columns of a .csv or .tsv, by name or number: text=sentence,id=key.
        input_format: Format of the input if its suffix does not tell: txt, jsonl, csv or tsv. stdin is txt by default.
        max_line: Longest line to read, in MiB.
        on_error: What to do about a line that fails: skip or stop. skip notes it and goes on.
        rejects: File for lines that failed, with reasons: .jsonl.
        batch_size: Texts that the model reads at once, at most; by default as many as fit.
        workers: Processes that share the work.
        engine: What runs the workers: local or ray (ray needs the extra ray).
        ray_address: Ray cluster to join; else one is started.
        tokenizer: What reads the texts of a model that is given itself.
        processor: What reads the pictures of a model that is given itself.
    """

def history(
    folder: Any = None, *,
    stream: str | None = None,
    layer: str | None | int | Sequence[int] = None,
    head: str | None | int | Sequence[int] = None,
    plot: Path | None | str = None,
    gif: Path | None | str = None,
    fail_above: float | None = None,
    output: Path | None | str = None,
    html: Path | None | str = None,
    overwrite: bool = False,
    max_rows: int = 500,
) -> Findings:
    """Show how heads change over a training run.

    Options:
        folder: Folder of samples: step-00000100.npz, …
        stream: One stream: encoder, decoder, cross, …
        layer: Layers from 0: 3, 0,2, 0-3, last or all.
        head: Heads: 2.3 is head 3 of layer 2, 2.3,2.4 are two; or 3, 0,2, 0-3, last or all, in each layer chosen.
        plot: Every head over the steps as a picture: .png, .svg or .pdf.
        gif: One head over the steps (.gif): the chosen one, or the one that drifts most.
        fail_above: Exit with 1 if a head's drift between the last two samples (0: none, 0.693: all) is larger.
        output: Data file, whose suffix names the format: .csv, .json, .jsonl, .tsv, .txt. An existing FILE is replaced.
        html: Everything as one interactive page: .html; of several texts FILE-0, FILE-1, …
        overwrite: Replace FILE-0, … of other programs, too.
        max_rows: Rows that a table shows at most; 0 shows all.
    """

def image(
    file: Any = None,
    more: list[str] | None = None, *,
    image_size: str | None = None,
    text: str | None = None,
    video: bool = False,
    model: Any = None,
    tokenizer: Any = None,
    processor: Any = None,
    adapter: str | None = None,
    device: Literal['auto', 'cpu', 'cuda', 'mps'] = 'auto',
    device_map: Literal['auto', 'balanced', 'sequential'] | None = None,
    dtype: Literal['float32', 'float64', 'float16', 'bfloat16'] | None = None,
    revision: str | None = None,
    allow_pickle: bool = False,
    allow_code: bool = False,
    generate: int | None = None,
    patch: str | None = None,
    token: str | None = None,
    lens: Literal['raw', 'rollout', 'flow', 'gradient', 'effect', 'norm'] = 'raw',
    explain: str | None = None,
    check: int = 20,
    layer: str | None | int | Sequence[int] = None,
    head: str | None | int | Sequence[int] = None,
    reduce: Literal['none', 'mean', 'max'] = 'none',
    over: Literal['both', 'heads', 'layers'] = 'both',
    special: Literal['keep', 'drop', 'renormalise'] = 'keep',
    overlay: Path | None | str = None,
    scale: Literal['own', 'shared'] = 'own',
    smooth: bool = False,
    output: Path | None | str = None,
    grid: Path | None | str = None,
    html: Path | None | str = None,
    overwrite: bool = False,
    max_rows: int = 500,
) -> Result:
    """Show where in a picture a vision model looks.

    Options:
        file: Picture: .png, .jpg, .webp, ….
        more: Further pictures, with --text.
        image_size: Size in pixels to read the picture in: 384, or HEIGHTxWIDTH; default: the size that the model was trained on.
        text: Prompt that a model like LLaVA reads with the pictures; its tokens are the rows.
        video: Read the frames of an animated picture, or several pictures in order, as a video.
        model: Model of transformers, its name or folder, or a shipped one ('pocket').
        adapter: Adapter (LoRA and others, peft) to merge into --model, by default the one it names.
        device: auto, cpu, cuda or mps.
        device_map: How to spread a model that is larger than one device: auto, balanced or sequential (needs accelerate).
        dtype: Precision: float32, float64, float16 or bfloat16; on a CPU float32.
        revision: Branch, tag or commit of a model on the hub.
        allow_pickle: Load pickled weights, of a model that you trust.
        allow_code: Run code that comes with a model, if you trust it.
        generate: Let the model write N tokens at most, and show them with the text.
        patch: Patch whose attention is shown, from 0,0 at the upper left, or all (as data); default: the class token, or else the mean over all patches.
        token: Token of --text or of what --generate wrote whose attention is shown, from 0, or all; default: the last, or all that was written.
        lens: What to compute from the weights: raw, rollout, flow, gradient, effect or norm. raw shows them as they are.
        explain: The output to explain: a class; a token by its text (red, red[3]) or number from 0; next:WORD, a possible next token; or all, each token predicted from those before it. Effects explain all by default.
        check: Links of --lens effect to measure, by cutting each, beside the estimates.
        layer: Layers from 0: 3, 0,2, 0-3, last or all.
        head: Heads: 2.3 is head 3 of layer 2, 2.3,2.4 are two; or 3, 0,2, 0-3, last or all, in each layer chosen.
        reduce: Combine heads and layers: none, mean or max.
        over: What --reduce combines: both, heads or layers.
        special: Special tokens, such as [CLS]: keep, drop or renormalise (drop, then scale rows to sum to 1).
        overlay: The weights of one head, or the mean over a layer, over the picture: .png, .svg or .pdf. Several words get one picture each.
        scale: Colours up to the largest weight of each picture (own) or of all (shared).
        smooth: Smooth the weights between patches in pictures.
        output: Data file, whose suffix names the format: .csv, .json, .jsonl, .npz, .parquet, .tsv, .txt. An existing FILE is replaced.
        grid: All heads side by side as a picture: .png, .svg or .pdf.
        html: Everything as one interactive page: .html; of several texts FILE-0, FILE-1, …
        overwrite: Replace FILE-0, … of other programs, too.
        max_rows: Rows that a table shows at most; 0 shows all.
        tokenizer: What reads the texts of a model that is given itself.
        processor: What reads the pictures of a model that is given itself.
    """

def lenses(
    text: Any = None,
    target: str | None = None, *,
    input: str | None = None,
    model: Any = None,
    tokenizer: Any = None,
    processor: Any = None,
    adapter: str | None = None,
    causal: bool = False,
    device: Literal['auto', 'cpu', 'cuda', 'mps'] = 'auto',
    device_map: Literal['auto', 'balanced', 'sequential'] | None = None,
    dtype: Literal['float32', 'float64', 'float16', 'bfloat16'] | None = None,
    revision: str | None = None,
    allow_pickle: bool = False,
    allow_code: bool = False,
    chat: bool = False,
    to: Literal['en', 'fr'] | None = None,
    seed: int = 0,
    explain: str | None = None,
    output: Path | None | str = None,
    max_rows: int = 500,
    columns: str | None = None,
    input_format: Literal['txt', 'jsonl', 'csv', 'tsv'] | None = None,
    max_line: int = 64,
    on_error: Literal['skip', 'stop'] = 'skip',
    rejects: Path | None | str = None,
) -> Findings:
    """Show how far each lens can be trusted.

    Options:
        text: Text, or the source text of a pair.
        target: Target text of a pair.
        input: Read texts from a file: .txt (one a line), .jsonl, .csv, .tsv, each also .gz; - is stdin.
        model: Model of transformers, its name or folder, or a shipped one ('pocket').
        adapter: Adapter (LoRA and others, peft) to merge into --model, by default the one it names.
        causal: Causal mask: hide every later token.
        device: auto, cpu, cuda or mps.
        device_map: How to spread a model that is larger than one device: auto, balanced or sequential (needs accelerate).
        dtype: Precision: float32, float64, float16 or bfloat16; on a CPU float32.
        revision: Branch, tag or commit of a model on the hub.
        allow_pickle: Load pickled weights, of a model that you trust.
        allow_code: Run code that comes with a model, if you trust it.
        chat: Read the text as a user's turn, by the model's chat template.
        to: Language of the target for the pocket model: en or fr.
        seed: Seed of the random scores.
        explain: The output to explain: a class; a token by its text (red, red[3]) or number from 0; next:WORD, a possible next token; or all, each token predicted from those before it. Effects explain all by default.
        output: Data file, whose suffix names the format: .csv, .json, .jsonl, .tsv, .txt. An existing FILE is replaced.
        max_rows: Rows that a table shows at most; 0 shows all.
        columns: Columns of a .csv or .tsv, by name or number: text=sentence,id=key.
        input_format: Format of the input if its suffix does not tell: txt, jsonl, csv or tsv. stdin is txt by default.
        max_line: Longest line to read, in MiB.
        on_error: What to do about a line that fails: skip or stop. skip notes it and goes on.
        rejects: File for lines that failed, with reasons: .jsonl.
        tokenizer: What reads the texts of a model that is given itself.
        processor: What reads the pictures of a model that is given itself.
    """

def lesson(
    name: Any = None, *,
    length: int | None = None,
    size: int | None = None,
    heads: int | None = None,
    window: int | None = None,
    steps: int | None = None,
    seed: int | None = None,
    text: str | None = None,
    model: Any = None,
    tokenizer: Any = None,
    processor: Any = None,
    plot: Path | None | str = None,
    output: Path | None | str = None,
    html: Path | None | str = None,
    overwrite: bool = False,
    max_rows: int = 500,
) -> Findings:
    """Teach one thing about attention in numbers.

    Options:
        name: One of positions, rotary, alibi, scaling, temperature, online, sinks, masking, padding, window, linear, delta, cache, groups, training, induction.
        length: Positions; in delta, pairs.
        size: Features of a position or head.
        heads: Heads in alibi, default 8.
        window: Positions to either side, default 2.
        steps: Training steps in training, default 300.
        seed: Seed of random numbers, default 0.
        text: Sentence to attend over.
        model: Model of transformers, its name or folder, or a shipped one ('pocket').
        plot: The lesson as a picture: .png, .svg or .pdf.
        output: Data file, whose suffix names the format: .csv, .json, .jsonl, .tsv, .txt. An existing FILE is replaced.
        html: Everything as one interactive page: .html; of several texts FILE-0, FILE-1, …
        overwrite: Replace FILE-0, … of other programs, too.
        max_rows: Rows that a table shows at most; 0 shows all.
        tokenizer: What reads the texts of a model that is given itself.
        processor: What reads the pictures of a model that is given itself.
    """

def steps(
    file: Any = None,
    target: str | None = None, *,
    text: str | None = None,
    example: str | None = None,
    mechanism: str | None = None,
    causal: bool = False,
    mask: str | None = None,
    padding: int = 0,
    model: Any = None,
    tokenizer: Any = None,
    processor: Any = None,
    adapter: str | None = None,
    device: Literal['auto', 'cpu', 'cuda', 'mps'] = 'auto',
    device_map: Literal['auto', 'balanced', 'sequential'] | None = None,
    dtype: Literal['float32', 'float64', 'float16', 'bfloat16'] | None = None,
    revision: str | None = None,
    allow_pickle: bool = False,
    allow_code: bool = False,
    stream: str | None = None,
    layer: str | None | int | Sequence[int] = None,
    head: str | None | int | Sequence[int] = None,
    scatter: Path | None | str = None,
    diagram: bool = False,
    output: Path | None | str = None,
    html: Path | None | str = None,
    overwrite: bool = False,
    max_rows: int = 500,
) -> Findings:
    """Show the arithmetic of attention, matrix by matrix.

    Options:
        file: A file of matrices (.json, .npz, .safetensors; - is stdin), or a sentence in quotes. Without it a worked example.
        target: Second sentence, whose words are the queries.
        text: A sentence, also of a single word.
        example: A worked example: self, cross or naive; or one of several in FILE, by name.
        mechanism: Which attention: rotary, or rotary:heads=2,size=8,seed=1 (default: one head, 4 features, seed 0); 'attnviz mechanisms' lists the names.
        causal: Hide later positions.
        mask: 1 where a query may look, a row for each: '1 0 1, 1 1 1', or one for all; or a file.
        padding: Hide the last N keys.
        model: Model of transformers, its name or folder, or a shipped one ('pocket').
        adapter: Adapter (LoRA and others, peft) to merge into --model, by default the one it names.
        device: auto, cpu, cuda or mps.
        device_map: How to spread a model that is larger than one device: auto, balanced or sequential (needs accelerate).
        dtype: Precision: float32, float64, float16 or bfloat16; on a CPU float32.
        revision: Branch, tag or commit of a model on the hub.
        allow_pickle: Load pickled weights, of a model that you trust.
        allow_code: Run code that comes with a model, if you trust it.
        stream: One stream: encoder, decoder, cross, …
        layer: Layers from 0: 3, 0,2, 0-3, last or all.
        head: Heads: 2.3 is head 3 of layer 2, 2.3,2.4 are two; or 3, 0,2, 0-3, last or all, in each layer chosen.
        scatter: Inputs, values and outputs in three dimensions, as a picture: .png, .svg or .pdf.
        diagram: Print the flow of data as Mermaid text instead.
        output: Data file, whose suffix names the format: .json, .jsonl, .npz, .txt. An existing FILE is replaced.
        html: Everything as one interactive page: .html; of several texts FILE-0, FILE-1, …
        overwrite: Replace FILE-0, … of other programs, too.
        max_rows: Rows that a table shows at most; 0 shows all.
        tokenizer: What reads the texts of a model that is given itself.
        processor: What reads the pictures of a model that is given itself.
    """
