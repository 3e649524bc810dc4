"""What four other tools take for the same questions about one model, as the table of the README.

Every tool has an environment of its own, with torch 2.13 and its newest release:

    python benchmarks/peers.py bertviz=PYTHON transformer-lens=PYTHON interpkit=PYTHON inseq=PYTHON

A cell is the median time of a fresh process, and the number of lines of its script (a command
is one line). All read the same folder: a GPT-2 of 12 layers × 12 heads with random weights. The
tools take turns. Of a page the size is told, and whether a browser must fetch scripts for it.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from attnviz import __version__

TEXT = "The cat sat on the mat because it was tired and it did not want to leave the house"
TURNS = 3
LONGEST = 300

LOAD = """from transformers import AutoModelForCausalLM, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained("model")
model = AutoModelForCausalLM.from_pretrained("model", attn_implementation="eager")
inputs = tokenizer(TEXT, return_tensors="pt")
attention = model(**inputs, output_attentions=True).attentions
tokens = tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])
"""
LENS = """import torch
from transformer_lens.model_bridge import TransformerBridge
model = TransformerBridge.boot_transformers("model")
"""
COMMANDS = {
    "weights of every head, saved": {
        "attnviz": "attnviz self TEXT --model model -f npz -o weights.npz",
        "transformer-lens": f"""{LENS}import numpy
_, cache = model.run_with_cache(TEXT)
maps = [cache["pattern", layer][0].detach().numpy() for layer in range(model.cfg.n_layers)]
numpy.savez("weights.npz", *maps)
""",
        "interpkit": "interpkit --format json attention model TEXT > weights.json",
    },
    "page of every head": {
        "attnviz": "attnviz self TEXT --model model --html page.html -f none",
        "bertviz": f"""{LOAD}from bertviz import model_view
page = model_view(attention, tokens, html_action="return")
open("page.html", "w").write(page.data)
""",
        "interpkit": "interpkit attention model TEXT --html page.html",
    },
    "each head switched off": {
        "attnviz": "attnviz ablate TEXT --model model --each heads -f tsv -o effects.tsv",
        "transformer-lens": f"""{LENS}tokens = model.to_tokens(TEXT)
def score(**hooks):
    with torch.no_grad():
        logits = model.run_with_hooks(tokens, **hooks)[0].log_softmax(-1)
    return logits[:-1].gather(1, tokens[0, 1:, None]).mean().item()
def off(head):
    def hook(z, hook):
        z[:, :, head] = 0
        return z
    return hook
before = score()
with open("effects.tsv", "w") as file:
    for layer in range(model.cfg.n_layers):
        for head in range(model.cfg.n_heads):
            name = f"blocks.{{layer}}.attn.hook_z"
            after = score(fwd_hooks=[(name, off(head))])
            print(layer, head, before - after, sep="\\t", file=file)
""",
    },
    "tokens that decide the next one": {
        "attnviz": "attnviz explain TEXT --model model -f json -o answer.json",
        "interpkit": "interpkit --format json attribute model TEXT > answer.json",
        "inseq": """import inseq
model = inseq.load_model("model", "integrated_gradients")
found = model.attribute(TEXT, generation_args={"max_new_tokens": 1, "do_sample": False})
found.save("answer.json")
""",
    },
}
"""A command, or a script, by the question and the tool; none: not asked, or no function found.

TEXT stands for the sentence.
"""


def make_model(folder: Path) -> None:
    """A GPT-2 of 144 heads with random weights, whose tokens are bytes and common pairs."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    words = Tokenizer(models.BPE())
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=alphabet, special_tokens=["<|endoftext|>"]
    )
    words.train_from_iterator([TEXT] * 9, trainer)
    end = dict.fromkeys(("bos_token", "eos_token", "unk_token", "pad_token"), "<|endoftext|>")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, **end)
    torch.manual_seed(0)
    sizes = {"n_layer": 12, "n_head": 12, "n_embd": 192, "n_positions": 512}
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    config = GPT2Config(vocab_size=len(tokenizer), **sizes, **ends)
    GPT2LMHeadModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def run(tool: str, python: str, script: str, folder: Path) -> float:
    """The seconds of a fresh process that runs a command or a script of Python."""
    script = script.replace("TEXT", repr(TEXT))
    if "\n" in script:
        words = [python, "-c", script]
    else:
        where = str(Path(python).parent)
        words = ["bash", "-c", f'PATH="{where}:$PATH" exec {script}']
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1"}
    start = time.perf_counter()
    done = subprocess.run(
        words, cwd=folder, env=env, capture_output=True, timeout=LONGEST, check=False
    )
    taken = time.perf_counter() - start
    if done.returncode:
        said = (done.stderr or done.stdout).decode(errors="replace")
        sys.exit(f"{tool}: {script}\n{said[-2000:]}")
    return taken


def cell(times: list[float], script: str, page: Path) -> str:
    """Seconds and lines; of a page its size, and whether it can be read without a network."""
    lines = len(script.strip().splitlines())
    said = f"{statistics.median(times):.1f} s, {'a command' if lines == 1 else f'{lines} lines'}"
    if page.exists():
        text = page.read_text(encoding="utf-8", errors="replace")
        fetched = re.search(r"""(src=|import\(|paths:[^}]*)["']?(https?:)?//""", text)
        said += f", {page.stat().st_size / 1e6:.1f} MB{', fetches scripts' if fetched else ''}"
    return said


def main(words: list[str]) -> None:
    pythons = {"attnviz": sys.executable, **dict(word.split("=", 1) for word in words)}
    ask = "import sys, importlib.metadata as m; print(m.version(sys.argv[1]))"
    names = {"attnviz": f"attnviz {__version__}"}
    for tool, python in pythons.items():
        if tool not in names:
            shown = subprocess.run([python, "-c", ask, tool], capture_output=True, check=True)
            names[tool] = f"{tool} {shown.stdout.decode().strip()}"
    print(f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores\n")
    print("| |", " | ".join(names.values()), "|")
    print("|" + "---|" * (len(names) + 1))
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        make_model(folder / "model")
        for question, scripts in COMMANDS.items():
            times: dict[str, list[float]] = {tool: [] for tool in scripts if tool in pythons}
            cells = dict.fromkeys(pythons, "–")
            page = folder / "page.html"
            for _ in range(TURNS):
                for tool, own in times.items():
                    for old in filter(Path.is_file, folder.iterdir()):
                        old.unlink()
                    own.append(run(tool, pythons[tool], scripts[tool], folder))
                    cells[tool] = cell(own, scripts[tool], page)
            print("|", question, "|", " | ".join(cells.values()), "|", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
