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
    layer: str | None | int | Sequence[int] = None,
    heads: Sequence[str | tuple[str | int, ...]] | None = None,
    links: Sequence[str | tuple[str | int, ...]] | None = None,
    tokens: Sequence[str | tuple[str | int, ...]] | None = None,
    each: Literal['heads', 'layers', 'links', 'tokens'] | None = None,
    by: Literal['zero', 'mean', 'resample'] = 'zero',
    reference: str | None = None,
    seed: int = 0,
    top: int = 10,
    bars: Path | None | str = None,
    grid: Path | None | str = None,
    highlight: Path | None | str = None,
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
    explain: str | None = None,
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
        text: Text, or the source of a pair.
        target: Target of a pair.
        input: Texts from .txt (one a line), .jsonl, .csv or .tsv, also .gz; - is stdin.
        layer: Layers to switch off, or those of --head 3: 2, 0,2 or 0-3, last, all; encoder.2.
        heads: Heads to switch off: 2.3 (head 3 of layer 2), 2.3,4.1, encoder.2.3; or 3, 0-3, all of each layer; may be repeated.
        links: Link to cut in every head: "rouge>red", "encoder:the>cat"; may be repeated.
        tokens: Token, or word of several, to hide from all others: red, or red[3] where there are more; may be repeated.
        each: Switch everything of a kind off, one by one: heads, layers, links or tokens.
        by: What a head puts out instead: zero, mean or resample. The mean is over the text's positions, or those of --reference, from which resample draws.
        reference: Texts whose positions --by mean and resample are taken from.
        seed: Seed of what --by resample draws.
        top: Effects that the table lists.
        bars: Effects as bars: .png, .svg or .pdf.
        grid: All heads coloured by effect, with --each heads: a picture.
        highlight: Text coloured by effect, with --each tokens: a picture.
        model: Model of transformers, its name or folder, or a shipped one ('pocket').
        adapter: Merge an adapter (LoRA and its like, peft) into --model, by default the one it names.
        causal: Hide every later token.
        device: auto, cpu, cuda or mps.
        device_map: Spread a model larger than one device: auto, balanced or sequential (accelerate).
        dtype: float32, float64, float16 or bfloat16. On a processor the first is the default.
        revision: Branch, tag or commit of a model on the hub.
        allow_pickle: Load pickled weights of a model that you trust.
        allow_code: Run the code that a model you trust brings along.
        chat: Read the text as a user's turn, by the model's chat template.
        to: Language of the target for the pocket model: en or fr.
        explain: What is explained: a class, a token (its text, red[3] or its number from 0), next:WORD for what could come next, or 'all' tokens, each predicted from those before it, the default of effects.
        output: Data file: .csv, .json, .jsonl, .npz, .tsv, .txt. Like every FILE written, it replaces an older one.
        max_rows: Rows that a table shows at most; 0: all.
        columns: Columns of a .csv or .tsv, by name or number: text=sentence,id=key.
        input_format: txt, jsonl, csv or tsv, where no suffix tells (stdin is txt).
        max_line: Longest line or row to read.
        on_error: A line that fails: skip or stop (skip says so).
        rejects: Lines that failed, with reasons, as .jsonl.
        tokenizer: What reads the texts of a model that is given itself.
        processor: What reads the pictures of a model that is given itself.
    """

def align(
    file: Any = '-', *,
    symmetrize: Literal['forward', 'reverse', 'intersection', 'union', 'grow-diag-final', 'grow-diag-final-and', 'product'] | None = None,
    against: Literal['input', 'output'] = 'input',
    score: Path | None | str = None,
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
    max_size: int | None = None,
    to: Literal['en', 'fr'] | None = None,
    layer: str | None | int | Sequence[int] = None,
    head: str | None | int | Sequence[int] = None,
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
        symmetrize: How two directions are joined: forward, reverse, intersection, union, grow-diag-final, grow-diag-final-and or product.
        against: A decoder row stands for the token it has read (input) or predicts (output).
        score: Lines of correct links (0-0 sure, 1?1 possible): score every layer and head.
        model: Model of transformers, its name or folder, or a shipped one ('pocket').
        adapter: Merge an adapter (LoRA and its like, peft) into --model, by default the one it names.
        device: auto, cpu, cuda or mps.
        device_map: Spread a model larger than one device: auto, balanced or sequential (accelerate).
        dtype: float32, float64, float16 or bfloat16. On a processor the first is the default.
        revision: Branch, tag or commit of a model on the hub.
        allow_pickle: Load pickled weights of a model that you trust.
        allow_code: Run the code that a model you trust brings along.
        max_size: Rows and columns of a map at most; a longer text is shown in blocks. Default 1024, fewer where many heads would fill the memory.
        to: Language of the target for the pocket model: en or fr.
        layer: Layers from 0: 3, 0,2 or 0-3, last, all.
        head: Heads from 0: 2.3 (head 3 of layer 2), 2.3,4.1, or 3, 0,2, 0-3, last, all of each layer.
        output: Data file: .csv, .json, .jsonl, .tsv, .txt. Like every FILE written, it replaces an older one.
        max_rows: Rows that a table shows at most; 0: all.
        columns: Columns of a .csv or .tsv, by name or number: text=sentence,id=key.
        input_format: txt, jsonl, csv or tsv, where no suffix tells (stdin is txt).
        max_line: Longest line or row to read.
        on_error: A line that fails: skip or stop (skip says so).
        rejects: Lines that failed, with reasons, as .jsonl.
        batch_size: Texts that a model reads at once at most; by default as many as fit.
        workers: Processes that share the work.
        engine: What runs the workers: local or ray (needs the extra ray).
        ray_address: A Ray cluster to join; else one is started.
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
        adapter: Merge an adapter (LoRA and its like, peft) into --model, by default the one it names.
        mechanism: Untrained layer: linear, or linear:heads=4,size=64,seed=0; 'attnviz mechanisms' lists the names.
        weights: Your own matrices or a saved map: .npz, .safetensors or .json.
        qk: Queries and keys that another program dumped: .npz, .safetensors or .json.
        causal: Hide every later token.
        seed: Seed of the random inputs of --weights, where the file holds projections only.
        device: auto, cpu, cuda or mps.
        device_map: Spread a model larger than one device: auto, balanced or sequential (accelerate).
        dtype: float32, float64, float16 or bfloat16. On a processor the first is the default.
        revision: Branch, tag or commit of a model on the hub.
        allow_pickle: Load pickled weights of a model that you trust.
        allow_code: Run the code that a model you trust brings along.
        generate: Tokens that the model writes at most; its output is shown with the text.
        chat: Read the text as a user's turn, by the model's chat template.
        keep_qk: Keep queries and keys, for the query · key view of --html and --open.
        channels: Of layers without attention that mix channel by channel (Mamba, RWKV): mean, 3, 0,2 or 0-3, all.
        max_size: Rows and columns of a map at most; a longer text is shown in blocks. Default 1024, fewer where many heads would fill the memory.
        rows: Only tokens A to B attend, counted from 0: exact.
        window: Only tokens A to B attend, and to each other.
        top: Strongest links that -f links lists, without special tokens and the diagonal; of a text in blocks found for each head, which 0 spares.
        to: Language of the target for the pocket model: en or fr.
        lens: What to make of the weights first: raw, rollout, flow, gradient, effect, norm or all; all shows them side by side.
        explain: What is explained: a class, a token (its text, red[3] or its number from 0), next:WORD for what could come next, or 'all' tokens, each predicted from those before it, the default of effects.
        check: Links of --lens effect that are measured, by cutting each, beside the estimate.
        stream: One stream: encoder, decoder, cross, …
        layer: Layers from 0: 3, 0,2 or 0-3, last, all.
        head: Heads from 0: 2.3 (head 3 of layer 2), 2.3,4.1, or 3, 0,2, 0-3, last, all of each layer.
        reduce: Combine heads and layers: none, mean or max.
        over: What --reduce combines: both, heads or layers.
        labels: A label for each token or word, "O" for none: "B-PER O O".
        special: Special tokens: keep, drop or renormalise (rows sum to 1 without them).
        group: Merge tokens: words, sentences, or a file with a piece of text a line.
        words: Short for --group words.
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
        adapter: Merge an adapter (LoRA and its like, peft) into --model, by default the one it names.
        mechanism: Untrained layer: linear, or linear:heads=4,size=64,seed=0; 'attnviz mechanisms' lists the names.
        weights: Your own matrices or a saved map: .npz, .safetensors or .json.
        qk: Queries and keys that another program dumped: .npz, .safetensors or .json.
        causal: Hide every later token.
        seed: Seed of the random inputs of --weights, where the file holds projections only.
        device: auto, cpu, cuda or mps.
        device_map: Spread a model larger than one device: auto, balanced or sequential (accelerate).
        dtype: float32, float64, float16 or bfloat16. On a processor the first is the default.
        revision: Branch, tag or commit of a model on the hub.
        allow_pickle: Load pickled weights of a model that you trust.
        allow_code: Run the code that a model you trust brings along.
        generate: Tokens that the model writes at most; its output is shown with the text.
        chat: Read the text as a user's turn, by the model's chat template.
        keep_qk: Keep queries and keys, for the query · key view of --html and --open.
        channels: Of layers without attention that mix channel by channel (Mamba, RWKV): mean, 3, 0,2 or 0-3, all.
        max_size: Rows and columns of a map at most; a longer text is shown in blocks. Default 1024, fewer where many heads would fill the memory.
        rows: Only tokens A to B attend, counted from 0: exact.
        window: Only tokens A to B attend, and to each other.
        top: Strongest links that -f links lists, without special tokens and the diagonal; of a text in blocks found for each head, which 0 spares.
        to: Language of the target for the pocket model: en or fr.
        lens: What to make of the weights first: raw, rollout, flow, gradient, effect, norm or all; all shows them side by side.
        explain: What is explained: a class, a token (its text, red[3] or its number from 0), next:WORD for what could come next, or 'all' tokens, each predicted from those before it, the default of effects.
        check: Links of --lens effect that are measured, by cutting each, beside the estimate.
        stream: One stream: encoder, decoder, cross, …
        layer: Layers from 0: 3, 0,2 or 0-3, last, all.
        head: Heads from 0: 2.3 (head 3 of layer 2), 2.3,4.1, or 3, 0,2, 0-3, last, all of each layer.
        reduce: Combine heads and layers: none, mean or max.
        over: What --reduce combines: both, heads or layers.
        labels: A label for each token or word, "O" for none: "B-PER O O".
        special: Special tokens: keep, drop or renormalise (rows sum to 1 without them).
        group: Merge tokens: words, sentences, or a file with a piece of text a line.
        words: Short for --group words.
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
    word_times: bool = False,
    times: Path | None | str = None,
    timing_heads: str | None = None,
    against: Literal['input', 'output'] = 'output',
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
    max_size: int | None = None,
    top: int = 20,
    stream: str | None = None,
    layer: str | None | int | Sequence[int] = None,
    head: str | None | int | Sequence[int] = None,
    reduce: Literal['none', 'mean', 'max'] = 'none',
    over: Literal['both', 'heads', 'layers'] = 'both',
    special: Literal['keep', 'drop', 'renormalise'] = 'keep',
    group: str | None = None,
    words: bool = False,
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
        language: What is spoken (en, french), for models that know several; default: what the model says.
        task: What such a model is told to do: transcribe or translate (into English).
        start: Where to begin in the recording.
        seconds: How much of it to hear at most; Whisper hears 30, AST 10.
        word_times: When each word is spoken, by the heads that the model names.
        times: True times of words (.tsv: word, start, end; .TextGrid; .vtt): how far each head errs.
        timing_heads: Heads that time words: 2.0,3.1.
        against: A row times the token that it predicts (output) or has read (input).
        model: Model of transformers, its name or folder, or a shipped one ('pocket').
        adapter: Merge an adapter (LoRA and its like, peft) into --model, by default the one it names.
        device: auto, cpu, cuda or mps.
        device_map: Spread a model larger than one device: auto, balanced or sequential (accelerate).
        dtype: float32, float64, float16 or bfloat16. On a processor the first is the default.
        revision: Branch, tag or commit of a model on the hub.
        allow_pickle: Load pickled weights of a model that you trust.
        allow_code: Run the code that a model you trust brings along.
        max_size: Rows and columns of a map at most; a longer text is shown in blocks. Default 1024, fewer where many heads would fill the memory.
        top: Strongest links that -f links lists, without special tokens and the diagonal; of a text in blocks found for each head, which 0 spares.
        stream: One stream: encoder, decoder, cross, …
        layer: Layers from 0: 3, 0,2 or 0-3, last, all.
        head: Heads from 0: 2.3 (head 3 of layer 2), 2.3,4.1, or 3, 0,2, 0-3, last, all of each layer.
        reduce: Combine heads and layers: none, mean or max.
        over: What --reduce combines: both, heads or layers.
        special: Special tokens: keep, drop or renormalise (rows sum to 1 without them).
        group: Merge tokens: words, sentences, or a file with a piece of text a line.
        words: Short for --group words.
        output: Data file: .csv, .json, .jsonl, .npz, .parquet, .textgrid, .tsv, .txt, .vtt. Like every FILE written, it replaces an older one.
        heatmap: One matrix as a picture: .png, .svg or .pdf.
        grid: Every head as a picture: .png, .svg or .pdf.
        width: Lay pictures out for a paper's column: single or double (85 or 178 mm), text at its usual size.
        lines: Tokens joined by lines, eight heads at most in colours: .png, .svg or .pdf.
        html: Everything as one interactive page: .html. Of many texts, and of pictures, FILE-0, FILE-1, …: such files of attnviz are replaced, others refused.
        overwrite: Replace files FILE-0, … that others made, too.
        max_rows: Rows that a table shows at most; 0: all.
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
    layer_a: str | None = None,
    layer_b: str | None = None,
    head_a: str | None = None,
    head_b: str | None = None,
    top: int = 10,
    fail_above: float | None = None,
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
    output: Path | None | str = None,
    heatmap: Path | None | str = None,
    grid: Path | None | str = None,
    width: Literal['single', 'double'] | None = None,
    max_rows: int = 500,
) -> Findings:
    """Show what changed between two attentions.

    Options:
        a: Text, a saved map (.npz, .json, .safetensors), or effects (.npz, .json).
        b: The other; without it the same text or map.
        model_a: Model of A, instead of --model.
        model_b: Model of B, instead of --model.
        revision_a: Revision of A's model.
        revision_b: Revision of B's model.
        adapter_a: Adapter of A's model.
        adapter_b: Adapter of B's model.
        layer_a: Layers of A, instead of --layer.
        layer_b: Layers of B, instead of --layer.
        head_a: Heads of A, instead of --head.
        head_b: Heads of B, instead of --head.
        top: Heads and links to name.
        fail_above: Exit with 1 if a head's divergence (0: none, 0.693: all) or an effect's change is larger.
        model: Model of transformers, its name or folder, or a shipped one ('pocket').
        adapter: Merge an adapter (LoRA and its like, peft) into --model, by default the one it names.
        mechanism: Untrained layer: linear, or linear:heads=4,size=64,seed=0; 'attnviz mechanisms' lists the names.
        causal: Hide every later token.
        device: auto, cpu, cuda or mps.
        device_map: Spread a model larger than one device: auto, balanced or sequential (accelerate).
        dtype: float32, float64, float16 or bfloat16. On a processor the first is the default.
        revision: Branch, tag or commit of a model on the hub.
        allow_pickle: Load pickled weights of a model that you trust.
        allow_code: Run the code that a model you trust brings along.
        generate: Tokens that the model writes at most; its output is shown with the text.
        chat: Read the text as a user's turn, by the model's chat template.
        max_size: Rows and columns of a map at most; a longer text is shown in blocks. Default 1024, fewer where many heads would fill the memory.
        lens: What to make of the weights first: raw, rollout, flow, gradient, effect, norm or all; all shows them side by side.
        explain: What is explained: a class, a token (its text, red[3] or its number from 0), next:WORD for what could come next, or 'all' tokens, each predicted from those before it, the default of effects.
        check: Links of --lens effect that are measured, by cutting each, beside the estimate.
        stream: One stream: encoder, decoder, cross, …
        layer: Layers from 0: 3, 0,2 or 0-3, last, all.
        head: Heads from 0: 2.3 (head 3 of layer 2), 2.3,4.1, or 3, 0,2, 0-3, last, all of each layer.
        reduce: Combine heads and layers: none, mean or max.
        over: What --reduce combines: both, heads or layers.
        special: Special tokens: keep, drop or renormalise (rows sum to 1 without them).
        group: Merge tokens: words, sentences, or a file with a piece of text a line.
        words: Short for --group words.
        output: Data file: .csv, .json, .jsonl, .npz, .tsv, .txt. Like every FILE written, it replaces an older one.
        heatmap: One matrix as a picture: .png, .svg or .pdf.
        grid: Every head as a picture: .png, .svg or .pdf.
        width: Lay pictures out for a paper's column: single or double (85 or 178 mm), text at its usual size.
        max_rows: Rows that a table shows at most; 0: all.
        tokenizer: What reads the texts of a model that is given itself.
        processor: What reads the pictures of a model that is given itself.
    """

def corpus(
    file: Any = None,
    more: list[str] | None = None, *,
    cross: bool = False,
    show: Literal['measures', 'positions', 'classes', 'pairs', 'links'] = 'measures',
    sort: Literal['role', 'layer', 'entropy', 'relative-entropy', 'span', 'confidence', 'mass', 'empty', 'distance', 'offset', 'patch-distance', 'previous-token', 'next-token', 'self', 'same-token', 'first-token', 'special-token', 'punctuation', 'sink', 'induction', 'duplicate', 'effect'] = 'role',
    effect: bool = False,
    by: Literal['zero', 'mean'] = 'zero',
    top: int | None = None,
    frequencies: Path | None | str = None,
    overview: Path | None | str = None,
    prune_curve: Path | None | str = None,
    atlas: Path | None | str = None,
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
    max_size: int | None = None,
    to: Literal['en', 'fr'] | None = None,
    stream: str | None = None,
    layer: str | None | int | Sequence[int] = None,
    head: str | None | int | Sequence[int] = None,
    special: Literal['keep', 'drop', 'renormalise'] = 'keep',
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
        cross: The texts are pairs of source and target: measure how targets attend to sources.
        show: What tables and rows hold: measures, positions, classes, pairs or links. json and npz hold everything.
        sort: Order: role (the clearest first), layer, or a measure (the largest first).
        effect: Switch off each head by itself, and measure what log p of the output loses, in nats.
        by: What a head that is off puts out instead: zero or mean.
        top: Heads in tables and rows, the first as sorted; all by default.
        frequencies: Word, tab, count a line: how frequent words are. Default: as in the texts.
        overview: Every head's positions, classes and measures as a picture: .png, .svg or .pdf.
        prune_curve: Loss while heads are switched off one after another, with --effect: a picture.
        atlas: A page of every head, with texts in which it attends strongly, usually and weakly.
        model: Model of transformers, its name or folder, or a shipped one ('pocket').
        adapter: Merge an adapter (LoRA and its like, peft) into --model, by default the one it names.
        mechanism: Untrained layer: linear, or linear:heads=4,size=64,seed=0; 'attnviz mechanisms' lists the names.
        causal: Hide every later token.
        device: auto, cpu, cuda or mps.
        device_map: Spread a model larger than one device: auto, balanced or sequential (accelerate).
        dtype: float32, float64, float16 or bfloat16. On a processor the first is the default.
        revision: Branch, tag or commit of a model on the hub.
        allow_pickle: Load pickled weights of a model that you trust.
        allow_code: Run the code that a model you trust brings along.
        max_size: Rows and columns of a map at most; a longer text is shown in blocks. Default 1024, fewer where many heads would fill the memory.
        to: Language of the target for the pocket model: en or fr.
        stream: One stream: encoder, decoder, cross, …
        layer: Layers from 0: 3, 0,2 or 0-3, last, all.
        head: Heads from 0: 2.3 (head 3 of layer 2), 2.3,4.1, or 3, 0,2, 0-3, last, all of each layer.
        special: Special tokens: keep, drop or renormalise (rows sum to 1 without them).
        output: Data file: .csv, .json, .jsonl, .npz, .tsv, .txt. Like every FILE written, it replaces an older one.
        max_rows: Rows that a table shows at most; 0: all.
        columns: Columns of a .csv or .tsv, by name or number: text=sentence,id=key.
        input_format: txt, jsonl, csv or tsv, where no suffix tells (stdin is txt).
        max_line: Longest line or row to read.
        on_error: A line that fails: skip or stop (skip says so).
        rejects: Lines that failed, with reasons, as .jsonl.
        batch_size: Texts that a model reads at once at most; by default as many as fit.
        workers: Processes that share the work.
        engine: What runs the workers: local or ray (needs the extra ray).
        ray_address: A Ray cluster to join; else one is started.
        resume: Continue an interrupted run with the same -o FILE.
        tokenizer: What reads the texts of a model that is given itself.
        processor: What reads the pictures of a model that is given itself.
    """

def heads(
    text: Any = None, *,
    input: str | None = None,
    cross: bool = False,
    no_repeat: bool = False,
    treebank: str | None = None,
    role: Literal['previous-token', 'next-token', 'self', 'same-token', 'first-token', 'special-token', 'punctuation', 'induction', 'duplicate'] | None = None,
    sort: Literal['role', 'layer', 'entropy', 'relative-entropy', 'span', 'confidence', 'mass', 'empty', 'distance', 'offset', 'patch-distance', 'previous-token', 'next-token', 'self', 'same-token', 'first-token', 'special-token', 'punctuation', 'sink', 'induction', 'duplicate', 'effect'] = 'role',
    effect: bool = False,
    by: Literal['zero', 'mean'] = 'zero',
    similar: bool = False,
    overview: Path | None | str = None,
    scatter: Path | None | str = None,
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
    max_size: int | None = None,
    to: Literal['en', 'fr'] | None = None,
    stream: str | None = None,
    layer: str | None | int | Sequence[int] = None,
    head: str | None | int | Sequence[int] = None,
    special: Literal['keep', 'drop', 'renormalise'] = 'keep',
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
        input: Texts from .txt (one a line), .jsonl, .csv or .tsv, also .gz; - is stdin.
        cross: The texts are pairs of source and target: measure how targets attend to sources.
        no_repeat: Leave out the second run, over random words said twice, that induction needs.
        treebank: Sentences with dependencies (.conllu): which head finds which relation.
        role: Only heads of this role: previous-token, next-token, self, same-token, first-token, special-token, punctuation, induction or duplicate.
        sort: Order: role (the clearest first), layer, or a measure (the largest first).
        effect: Switch off each head by itself, and measure what log p of the output loses, in nats.
        by: What a head that is off puts out instead: zero or mean.
        similar: Show which heads look alike instead: Jensen-Shannon divergences.
        overview: Roles and measures of all heads as a picture: .png, .svg or .pdf.
        scatter: Heads in a plane, near where they look alike, as a picture.
        model: Model of transformers, its name or folder, or a shipped one ('pocket').
        adapter: Merge an adapter (LoRA and its like, peft) into --model, by default the one it names.
        mechanism: Untrained layer: linear, or linear:heads=4,size=64,seed=0; 'attnviz mechanisms' lists the names.
        weights: Your own matrices or a saved map: .npz, .safetensors or .json.
        qk: Queries and keys that another program dumped: .npz, .safetensors or .json.
        causal: Hide every later token.
        seed: Seed of the random inputs of --weights, where the file holds projections only.
        device: auto, cpu, cuda or mps.
        device_map: Spread a model larger than one device: auto, balanced or sequential (accelerate).
        dtype: float32, float64, float16 or bfloat16. On a processor the first is the default.
        revision: Branch, tag or commit of a model on the hub.
        allow_pickle: Load pickled weights of a model that you trust.
        allow_code: Run the code that a model you trust brings along.
        max_size: Rows and columns of a map at most; a longer text is shown in blocks. Default 1024, fewer where many heads would fill the memory.
        to: Language of the target for the pocket model: en or fr.
        stream: One stream: encoder, decoder, cross, …
        layer: Layers from 0: 3, 0,2 or 0-3, last, all.
        head: Heads from 0: 2.3 (head 3 of layer 2), 2.3,4.1, or 3, 0,2, 0-3, last, all of each layer.
        special: Special tokens: keep, drop or renormalise (rows sum to 1 without them).
        output: Data file: .csv, .json, .jsonl, .tsv, .txt. Like every FILE written, it replaces an older one.
        max_rows: Rows that a table shows at most; 0: all.
        columns: Columns of a .csv or .tsv, by name or number: text=sentence,id=key.
        input_format: txt, jsonl, csv or tsv, where no suffix tells (stdin is txt).
        max_line: Longest line or row to read.
        on_error: A line that fails: skip or stop (skip says so).
        rejects: Lines that failed, with reasons, as .jsonl.
        batch_size: Texts that a model reads at once at most; by default as many as fit.
        workers: Processes that share the work.
        engine: What runs the workers: local or ray (needs the extra ray).
        ray_address: A Ray cluster to join; else one is started.
        tokenizer: What reads the texts of a model that is given itself.
        processor: What reads the pictures of a model that is given itself.
    """

def history(
    folder: Any = None, *,
    plot: Path | None | str = None,
    gif: Path | None | str = None,
    fail_above: float | None = None,
    stream: str | None = None,
    layer: str | None | int | Sequence[int] = None,
    head: str | None | int | Sequence[int] = None,
    output: Path | None | str = None,
    html: Path | None | str = None,
    overwrite: bool = False,
    max_rows: int = 500,
) -> Findings:
    """Show how heads change over a training run.

    Options:
        folder: Folder of samples: step-00000100.npz, …
        plot: Every head over the steps as a picture: .png, .svg or .pdf.
        gif: One head over the steps: .gif. Of several, the one that drifted most.
        fail_above: Exit with 1 if a head's drift between the last two samples (0: none, 0.693: all) is larger.
        stream: One stream: encoder, decoder, cross, …
        layer: Layers from 0: 3, 0,2 or 0-3, last, all.
        head: Heads from 0: 2.3 (head 3 of layer 2), 2.3,4.1, or 3, 0,2, 0-3, last, all of each layer.
        output: Data file: .csv, .json, .jsonl, .tsv, .txt. Like every FILE written, it replaces an older one.
        html: Everything as one interactive page: .html. Of many texts, and of pictures, FILE-0, FILE-1, …: such files of attnviz are replaced, others refused.
        overwrite: Replace files FILE-0, … that others made, too.
        max_rows: Rows that a table shows at most; 0: all.
    """

def image(
    file: Any = None,
    more: list[str] | None = None, *,
    patch: str | None = None,
    image_size: str | None = None,
    text: str | None = None,
    video: bool = False,
    token: str | None = None,
    lens: Literal['raw', 'rollout', 'flow', 'gradient', 'effect', 'norm'] = 'raw',
    overlay: Path | None | str = None,
    scale: Literal['own', 'shared'] = 'own',
    smooth: bool = False,
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
    explain: str | None = None,
    check: int = 20,
    layer: str | None | int | Sequence[int] = None,
    head: str | None | int | Sequence[int] = None,
    reduce: Literal['none', 'mean', 'max'] = 'none',
    over: Literal['both', 'heads', 'layers'] = 'both',
    special: Literal['keep', 'drop', 'renormalise'] = 'keep',
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
        patch: Patch that looks, from 0,0 at the upper left, or all (as data); default: the class token, else the mean over patches.
        image_size: Pixels to read the picture in: 384, or HEIGHTxWIDTH; default: what the model was trained on.
        text: Text that is read with the pictures, by a model like LLaVA: its tokens look.
        video: Read the frames of an animated picture, or all pictures in order, as a video.
        token: Token of --text, or of what --generate wrote, that looks, from 0, or all; default: the last, of what was written all.
        lens: What to make of the weights first: raw, rollout, flow, gradient, effect or norm.
        overlay: One head, or the mean over a layer's heads, over the picture; of several words one picture each: .png, .svg, .pdf.
        scale: Colours up to the largest weight of each picture, or of all: own or shared.
        smooth: Smooth weights between patches in pictures.
        model: Model of transformers, its name or folder, or a shipped one ('pocket').
        adapter: Merge an adapter (LoRA and its like, peft) into --model, by default the one it names.
        device: auto, cpu, cuda or mps.
        device_map: Spread a model larger than one device: auto, balanced or sequential (accelerate).
        dtype: float32, float64, float16 or bfloat16. On a processor the first is the default.
        revision: Branch, tag or commit of a model on the hub.
        allow_pickle: Load pickled weights of a model that you trust.
        allow_code: Run the code that a model you trust brings along.
        generate: Tokens that the model writes at most; its output is shown with the text.
        explain: What is explained: a class, a token (its text, red[3] or its number from 0), next:WORD for what could come next, or 'all' tokens, each predicted from those before it, the default of effects.
        check: Links of --lens effect that are measured, by cutting each, beside the estimate.
        layer: Layers from 0: 3, 0,2 or 0-3, last, all.
        head: Heads from 0: 2.3 (head 3 of layer 2), 2.3,4.1, or 3, 0,2, 0-3, last, all of each layer.
        reduce: Combine heads and layers: none, mean or max.
        over: What --reduce combines: both, heads or layers.
        special: Special tokens: keep, drop or renormalise (rows sum to 1 without them).
        output: Data file: .csv, .json, .jsonl, .npz, .parquet, .tsv, .txt. Like every FILE written, it replaces an older one.
        grid: Every head as a picture: .png, .svg or .pdf.
        html: Everything as one interactive page: .html. Of many texts, and of pictures, FILE-0, FILE-1, …: such files of attnviz are replaced, others refused.
        overwrite: Replace files FILE-0, … that others made, too.
        max_rows: Rows that a table shows at most; 0: all.
        tokenizer: What reads the texts of a model that is given itself.
        processor: What reads the pictures of a model that is given itself.
    """

def lenses(
    text: Any = None,
    target: str | None = None, *,
    input: str | None = None,
    seed: int = 0,
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
        text: Text, or the source of a pair.
        target: Target of a pair.
        input: Texts from .txt (one a line), .jsonl, .csv or .tsv, also .gz; - is stdin.
        seed: Seed of the random scores.
        model: Model of transformers, its name or folder, or a shipped one ('pocket').
        adapter: Merge an adapter (LoRA and its like, peft) into --model, by default the one it names.
        causal: Hide every later token.
        device: auto, cpu, cuda or mps.
        device_map: Spread a model larger than one device: auto, balanced or sequential (accelerate).
        dtype: float32, float64, float16 or bfloat16. On a processor the first is the default.
        revision: Branch, tag or commit of a model on the hub.
        allow_pickle: Load pickled weights of a model that you trust.
        allow_code: Run the code that a model you trust brings along.
        chat: Read the text as a user's turn, by the model's chat template.
        to: Language of the target for the pocket model: en or fr.
        explain: What is explained: a class, a token (its text, red[3] or its number from 0), next:WORD for what could come next, or 'all' tokens, each predicted from those before it, the default of effects.
        output: Data file: .csv, .json, .jsonl, .tsv, .txt. Like every FILE written, it replaces an older one.
        max_rows: Rows that a table shows at most; 0: all.
        columns: Columns of a .csv or .tsv, by name or number: text=sentence,id=key.
        input_format: txt, jsonl, csv or tsv, where no suffix tells (stdin is txt).
        max_line: Longest line or row to read.
        on_error: A line that fails: skip or stop (skip says so).
        rejects: Lines that failed, with reasons, as .jsonl.
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
        length: Positions, or pairs of delta.
        size: Features of a position or head.
        heads: Heads of alibi, default 8.
        window: Positions to either side, default 2.
        steps: Steps of training, default 300.
        seed: Seed of random numbers, default 0.
        text: Sentence that is attended over.
        model: Model of transformers, its name or folder, or a shipped one ('pocket').
        plot: The lesson as a picture: .png, .svg or .pdf.
        output: Data file: .csv, .json, .jsonl, .tsv, .txt. Like every FILE written, it replaces an older one.
        html: Everything as one interactive page: .html. Of many texts, and of pictures, FILE-0, FILE-1, …: such files of attnviz are replaced, others refused.
        overwrite: Replace files FILE-0, … that others made, too.
        max_rows: Rows that a table shows at most; 0: all.
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
    scatter: Path | None | str = None,
    diagram: bool = False,
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
    output: Path | None | str = None,
    html: Path | None | str = None,
    overwrite: bool = False,
    max_rows: int = 500,
) -> Findings:
    """Show the arithmetic of attention, matrix by matrix.

    Options:
        file: File of matrices (.json, .npz, .safetensors; - is stdin), or a sentence: what has a space in it, is no file and does not end like one. Without: a worked example.
        target: Second sentence, whose words are the queries.
        text: Sentence, of one word or more.
        example: Worked example: self, cross or naive; with a FILE of several, one of them.
        mechanism: Which attention: rotary, or rotary:heads=2,size=8,seed=1 (default: one head, 4 features, seed 0); 'attnviz mechanisms' lists the names.
        causal: Hide later positions.
        mask: 1 where a query may look, a row a query: '1 0 1, 1 1 1'; one row is for all. Or a file that holds it as mask.
        padding: Hide the last N keys.
        scatter: Inputs, values and outputs in three dimensions: .png, .svg or .pdf.
        diagram: Print the flow of the data as Mermaid text instead.
        model: Model of transformers, its name or folder, or a shipped one ('pocket').
        adapter: Merge an adapter (LoRA and its like, peft) into --model, by default the one it names.
        device: auto, cpu, cuda or mps.
        device_map: Spread a model larger than one device: auto, balanced or sequential (accelerate).
        dtype: float32, float64, float16 or bfloat16. On a processor the first is the default.
        revision: Branch, tag or commit of a model on the hub.
        allow_pickle: Load pickled weights of a model that you trust.
        allow_code: Run the code that a model you trust brings along.
        stream: One stream: encoder, decoder, cross, …
        layer: Layers from 0: 3, 0,2 or 0-3, last, all.
        head: Heads from 0: 2.3 (head 3 of layer 2), 2.3,4.1, or 3, 0,2, 0-3, last, all of each layer.
        output: Data file: .json, .jsonl, .npz, .txt. Like every FILE written, it replaces an older one.
        html: Everything as one interactive page: .html. Of many texts, and of pictures, FILE-0, FILE-1, …: such files of attnviz are replaced, others refused.
        overwrite: Replace files FILE-0, … that others made, too.
        max_rows: Rows that a table shows at most; 0: all.
        tokenizer: What reads the texts of a model that is given itself.
        processor: What reads the pictures of a model that is given itself.
    """
