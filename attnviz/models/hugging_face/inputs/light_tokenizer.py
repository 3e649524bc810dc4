"""A tokenizer.json read by the library tokenizers alone, where transformers would read it alike.

transformers finds a tokenizer's class by two files and a table, and some classes build their steps
anew. Where the file's steps are those of its class too, every way leads to the same tokens;
anything else is left to transformers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnviz.core.errors import ModelError
from attnviz.models.hugging_face.load import checkpoint, devices, imports
from attnviz.models.light.network import UnknownArchitecture

if TYPE_CHECKING:
    from tokenizers import Tokenizer

FREE = (
    "chat_template clean_up_tokenization_spaces errors init_inputs is_local legacy "
    "local_files_only max_length model_input_names model_max_length name_or_path "
    "pad_to_multiple_of pad_token_type_id padding_side special_tokens_map_file "
    "spaces_between_special_tokens stride tokenizer_class tokenizer_file truncation_side "
    "truncation_strategy use_default_system_prompt"
)
"""Keys of tokenizer_config.json that no token depends on, or that are read here."""
CHOICES: Mapping[str, tuple[Any, ...]] = {
    "add_bos_token": (True, False, None),  # transformers takes them from tokenizer.json
    "add_eos_token": (True, False, None),
    "additional_special_tokens": ([], None),
    "backend": ("tokenizers",),
    "do_basic_tokenize": (True,),
    "extra_special_tokens": ([], {}, None),
    "init_inputs": ([],),
    "never_split": (None,),
    "model_specific_special_tokens": ({},),
    "split_special_tokens": (False,),
    "use_fast": (True,),
}
"""Keys of tokenizer_config.json that change nothing with these values."""
GENERIC = ("PreTrainedTokenizer", "PreTrainedTokenizerFast", "TokenizersBackend")
"""Classes that take a tokenizer.json as it is."""
DISBELIEVING = ("qwen2",)
"""Models whose own class transformers takes though their files name a generic one."""
TOKENS = {
    "BertTokenizer": "unk [UNK] sep [SEP] pad [PAD] cls [CLS] mask [MASK]",
    "DistilBertTokenizer": "unk [UNK] sep [SEP] pad [PAD] cls [CLS] mask [MASK]",
    "GPT2Tokenizer": "unk <|endoftext|> bos <|endoftext|> eos <|endoftext|>",
    "GPTNeoXTokenizer": "unk <|endoftext|> bos <|endoftext|> eos <|endoftext|> pad <|padding|>",
    "RobertaTokenizer": "bos <s> cls <s> eos </s> sep </s> unk <unk> pad <pad> mask <mask>",
    "Qwen2Tokenizer": "unk <|endoftext|> eos <|endoftext|> pad <|endoftext|>",
    "GemmaTokenizer": "unk <unk> bos <bos> eos <eos> pad <pad> mask <mask>",
}
"""The special tokens of classes that build their steps, where no file names others."""
HEEDED = (
    "add_prefix_space added_tokens_decoder do_lower_case strip_accents tokenize_chinese_chars "
    "trim_offsets"
)
"""Keys of tokenizer_config.json that the steps of a class depend on."""
OTHER_FILES = ("added_tokens.json", "tokenizer.model", "spiece.model", "tekken.json")
"""Files from which transformers may make something else."""
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""What Qwen2's tokenizer takes as words."""
Config = Mapping[str, Any]


def steps_of(kind: str, config: Config, ids: Mapping[str, int]) -> dict[str, Any]:
    """The steps that a class builds by name, and the settings of its model as `model.NAME`."""
    from tokenizers import Regex, normalizers, pre_tokenizers, processors

    space, trim = config.get("add_prefix_space") or False, config.get("trim_offsets", True)
    unknown = content_of(config["unk_token"])
    first, last = (str(content_of(config.get(f"{name}_token"))) for name in ("cls", "sep"))
    if kind in ("BertTokenizer", "DistilBertTokenizer"):
        return {
            "normalizer": normalizers.BertNormalizer(
                clean_text=True,
                handle_chinese_chars=config.get("tokenize_chinese_chars", True),
                strip_accents=config.get("strip_accents"),
                lowercase=config.get("do_lower_case", True),
            ),
            "pre_tokenizer": pre_tokenizers.BertPreTokenizer(),
            "post_processor": processors.TemplateProcessing(
                single=f"{first}:0 $A:0 {last}:0",
                pair=f"{first}:0 $A:0 {last}:0 $B:1 {last}:1",
                special_tokens=[(first, ids[first]), (last, ids[last])],
            ),
            "model.unk_token": unknown,
            "model.continuing_subword_prefix": "##",
            "model.max_input_chars_per_word": 100,
        }
    names = "unk_token continuing_subword_prefix end_of_word_suffix dropout fuse_unk byte_fallback"
    steps: dict[str, Any] = {f"model.{name}": None for name in [*names.split(), "ignore_merges"]}
    steps["normalizer"] = None
    steps["pre_tokenizer"] = pre_tokenizers.ByteLevel(add_prefix_space=space)
    if kind == "RobertaTokenizer":
        ends = (last, ids[last]), (first, ids[first])
        steps["post_processor"] = processors.RobertaProcessing(*ends, trim, space)
    elif kind == "GPTNeoXTokenizer":
        steps["normalizer"] = normalizers.NFC()
        steps["pre_tokenizer"] = pre_tokenizers.ByteLevel(space, trim_offsets=trim)
    elif kind == "Qwen2Tokenizer":
        split = pre_tokenizers.Split(Regex(WORDS), behavior="isolated", invert=False)
        bytes_of = pre_tokenizers.ByteLevel(add_prefix_space=space, use_regex=False)
        steps["normalizer"] = normalizers.NFC()
        steps["pre_tokenizer"] = pre_tokenizers.Sequence([split, bytes_of])
    elif kind == "GemmaTokenizer":
        steps["normalizer"] = normalizers.Replace(" ", "▁")
        steps["pre_tokenizer"] = pre_tokenizers.Split(" ", behavior="merged_with_previous")
        steps |= {"model.fuse_unk": True, "model.byte_fallback": True, "model.unk_token": unknown}
    return steps


class LightEncoding(dict[str, Any]):
    """Inputs of a model by name, as transformers gives them."""

    def __init__(self, encoding: Any, names: Sequence[str]) -> None:
        super().__init__(
            input_ids=encoding.ids,
            token_type_ids=encoding.type_ids,
            attention_mask=encoding.attention_mask,
        )
        for name in self.keys() - set(names):
            del self[name]
        self |= {
            "offset_mapping": encoding.offsets,
            "special_tokens_mask": encoding.special_tokens_mask,
        }
        self.parts = encoding.sequence_ids

    def sequence_ids(self) -> list[int | None]:
        """The text of a pair to which each token belongs; None: a mark."""
        return list(self.parts)


class LightTokenizer:
    """The part of a transformers tokenizer that `tokenization` uses."""

    is_fast = True

    def __init__(self, path: Path, config: Config, names: Sequence[str]) -> None:
        from tokenizers import Tokenizer

        self.name_or_path, self.names = str(path.parent), names
        self.backend = Tokenizer.from_file(str(path))
        self.backend.no_truncation()
        self.backend.no_padding()
        self.unk_token = content_of(config.get("unk_token"))
        marks = (content_of(config.get(f"{name}_token")) for name in ("unk", "mask", "eos"))
        self.unk_token_id, self.mask_token_id, self.eos_token_id = (
            name and self.backend.token_to_id(name) for name in marks
        )
        self.added_tokens_decoder = self.backend.get_added_tokens_decoder()
        special = {str(content_of(one)) for key, one in config.items() if key.endswith("_token")}
        numbers = map(self.backend.token_to_id, special)
        self.all_special_ids = [number for number in numbers if number is not None]
        self.cleans = bool(config.get("clean_up_tokenization_spaces"))
        limit = config.get("model_max_length")
        self.model_max_length = 10**30 if limit is None else limit

    def __call__(
        self,
        text: str | None = None,
        second: str | None = None,
        *,
        text_target: str | None = None,
        add_special_tokens: bool = True,
        **_: Any,
    ) -> LightEncoding:
        """The inputs for a text or a pair, with offsets and marks; a target is read alike."""
        first = text if text_target is None else text_target
        encoding = self.backend.encode(first, second, add_special_tokens=add_special_tokens)
        return LightEncoding(encoding, self.names)

    def convert_tokens_to_string(self, pieces: list[str]) -> str:
        """The text of some pieces."""
        decoder = self.backend.decoder
        return str(decoder.decode(pieces)) if decoder else " ".join(pieces)

    def convert_ids_to_tokens(self, ids: Sequence[int] | int) -> Any:
        """The piece of each id, or of one; None: there is none."""
        if isinstance(ids, int):
            return self.backend.id_to_token(ids)
        return [self.backend.id_to_token(number) for number in ids]

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False, **_: Any) -> str:
        return str(self.backend.decode(ids, skip_special_tokens=skip_special_tokens))


def content_of(token: Any) -> Any:
    """A special token as a configuration writes it."""
    return token.get("content") if isinstance(token, Mapping) else token


def load_light_tokenizer(folder: Path, usual: str, model_type: str = "") -> LightTokenizer:
    """The tokenizer of a folder, for a model of a type whose class of tokenizers is usually this.

    Raises:
        UnknownArchitecture: transformers may read it in another way.
    """
    path = folder / "tokenizer.json"
    there = [name for name in OTHER_FILES if (folder / name).is_file()]
    if there or not path.is_file():
        raise UnknownArchitecture(f"its folder has {there[0] if there else 'no tokenizer.json'}")
    checkpoint.check_growth(folder)
    config = _read_config(folder)
    kind = usual if config.get("tokenizer_class") is None else config["tokenizer_class"]
    kind = kind.removesuffix("Fast") if kind not in GENERIC and isinstance(kind, str) else kind
    if kind in GENERIC and model_type in DISBELIEVING:
        kind = usual
    if kind not in (*GENERIC, *TOKENS):
        raise UnknownArchitecture(f"its tokenizer is a {kind}")
    own_keys = HEEDED.split() if kind in TOKENS else ["added_tokens_decoder"]
    known_keys = {*FREE.split(), *CHOICES, *own_keys}
    for key, value in config.items():
        if key in CHOICES and value not in CHOICES[key]:
            raise UnknownArchitecture(f"its tokenizer has '{key}' {value!r}")
        if key not in known_keys and not key.endswith("_token"):
            raise UnknownArchitecture(f"its tokenizer has the key '{key}'")
    words = TOKENS.get(kind, "").split()
    usual_tokens = {f"{name}_token": one for name, one in zip(*[iter(words)] * 2, strict=True)}
    whole = {**usual_tokens, **config}
    own = ["token_type_ids"] if kind == "BertTokenizer" else []
    try:
        names = config.get("model_input_names") or ["input_ids", "attention_mask", *own]
        with devices.library_errors("the library panics"), imports.quiet_native():
            tokenizer = LightTokenizer(path, whole, names)
        special = _check_added(tokenizer.backend, config, usual_tokens)
        if kind in TOKENS:
            _check_steps(tokenizer.backend, steps_of(kind, whole, special), kind)
    except UnknownArchitecture:
        raise
    except Exception as error:  # the library raises plain exceptions; transformers reports it
        raise UnknownArchitecture("its tokenizer cannot be read") from error
    return tokenizer


def _read_config(folder: Path) -> dict[str, Any]:
    """The entries of tokenizer_config.json, and of special_tokens_map.json where it counts."""
    files = (folder / name for name in ("tokenizer_config.json", "special_tokens_map.json"))
    try:
        config, special = (checkpoint.read_json(file) if file.is_file() else {} for file in files)
    except ModelError as error:
        raise UnknownArchitecture(str(error)) from error
    if not isinstance(config, dict) or not isinstance(special, dict):
        raise UnknownArchitecture("its tokenizer_config.json is no list of settings")
    return config if "added_tokens_decoder" in config else {**config, **special}


def _check_added(backend: Tokenizer, config: Config, tokens: Config) -> dict[str, int]:
    """The added tokens by name; all that are special by the configuration are so in the file."""
    file = backend.get_added_tokens_decoder()
    flags = ("content", "lstrip", "rstrip", "normalized", "single_word", "special")
    rows = {one.content: {flag: getattr(one, flag) for flag in flags} for one in file.values()}
    entries = config.get("added_tokens_decoder")
    if entries is not None:
        here = {str(number): rows[one.content] for number, one in file.items()}
        there = {number: {**dict.fromkeys(flags, False), **one} for number, one in entries.items()}
        if here != {number: {f: one[f] for f in flags} for number, one in there.items()}:
            raise UnknownArchitecture("its tokenizer's files add different tokens")
    for key, value in {**tokens, **config}.items():
        if not key.endswith("_token") or value is None or key in CHOICES:
            continue
        own = rows.get(content_of(value))
        plain = key not in config and any(own[flag] for flag in flags[1:5]) if own else False
        if own is None or not own["special"] or plain:
            raise UnknownArchitecture(f"its tokenizer.json has no special token {value!r}")
        if isinstance(value, Mapping) and any(own[f] != value.get(f, own[f]) for f in flags[:5]):
            raise UnknownArchitecture(f"its tokenizer's files differ in '{key}'")
    return {one.content: number for number, one in file.items()}


def _check_steps(backend: Tokenizer, steps: Mapping[str, Any], kind: str) -> None:
    if kind == "GPTNeoXTokenizer" and backend.num_special_tokens_to_add(is_pair=False):
        raise UnknownArchitecture("its tokenizer.json adds tokens, and its class none")
    for name, step in steps.items():
        where, _, setting = name.rpartition(".")
        own = getattr(backend.model if where else backend, setting, None)
        if not where:
            own, step = (one and json.loads(one.__getstate__()) for one in (own, step))
        if (own or None) != (step or None):
            raise UnknownArchitecture(f"the {name} of its tokenizer is not that of a {kind}")
