"""Tiny pretrained networks of Hugging Face's format, made from a configuration; nothing is downloaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import AutoConfig, AutoModel

WORDS = ("good", "bad", "red", "blue", *(f"w{i}" for i in range(20)))
MARKS = ("[PAD]", "[CLS]", "[SEP]", "[UNK]")
SHAPE = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}
VOCABULARY = {"vocab_size": len(MARKS) + len(WORDS), "max_position_embeddings": 32}
SMALL_IMAGE = {"image_size": 16, "patch_size": 8}
STAGES = {"hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1]}
CONFIGS: dict[str, dict[str, Any]] = {
    "bert": {**SHAPE, **VOCABULARY},
    "distilbert": {**VOCABULARY, "dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32},
    "electra": {**SHAPE, **VOCABULARY, "embedding_size": 16},
    "mpnet": {**SHAPE, **VOCABULARY},
    "roberta": {**SHAPE, **VOCABULARY},
    "convnext": {**STAGES, "image_size": 32},
    "deit": {**SHAPE, **SMALL_IMAGE},
    "dinov2": {**SHAPE, **SMALL_IMAGE},
    "resnet": {**STAGES, "embedding_size": 8, "layer_type": "basic"},
    "vit": {**SHAPE, **SMALL_IMAGE},
}
"""Architecture -> a configuration that is built in a moment."""
TEXTS = ("bert", "distilbert", "electra", "mpnet", "roberta")


def save_network(kind: str, folder: Path, **changes: Any) -> Path:
    """Write a network with random weights, and of texts its tokenizer; return the folder."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **{**CONFIGS[kind], **changes})
    AutoModel.from_config(config, attn_implementation="eager").save_pretrained(folder)
    if kind in TEXTS:
        save_tokenizer(folder)
    else:
        colours = {"image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.2, 0.2]}
        (folder / "preprocessor_config.json").write_text(json.dumps(colours))
    return folder


def save_tokenizer(folder: Path, more: tuple[str, ...] = ()) -> None:
    """Write a tokenizer of words, with two marks around a text."""
    ids = {word: place for place, word in enumerate((*MARKS, *WORDS, *more))}
    tokenizer = Tokenizer(WordLevel(ids, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
