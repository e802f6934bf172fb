"""An HTTP engine for one GPU: a transformers model behind the part of vLLM's API that training uses.

    python recipes/torch_engine.py --model FOLDER [--device cuda] [--dtype float32] [--slots 256] [--context 2048]

It prints its URL. POST /inference/v1/generate samples, ids in and ids out; GET /v1/models; POST /pause, /resume and
/update_weight_version as vLLM has them; POST /load_weights {"path": FOLDER} reads new weights while paused.
Requests join and leave the running batch at every token. For large models use vLLM or SGLang: this file is short, exact
and easy to change, and about as fast as one GPU allows for models below a billion parameters.

A sequence is waiting, running (it owns a slot of the cache) or ended. Only the engine's thread touches the model, the
cache and running sequences; requests reach it through `_waiting`. New weights invalidate the cache, so all running
sequences go back to waiting and are computed again, with the tokens sampled so far as part of their prompts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
import uvicorn
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, PreTrainedModel

Json = dict[str, Any]


class RefusedError(Exception):
    """A request that cannot be served; the client is told why, with status 400."""


@dataclass(frozen=True)
class Sampling:
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    max_tokens: int | None = None
    stop_token_ids: frozenset[int] = frozenset()
    ignore_eos: bool = False
    seed: int | None = None

    @classmethod
    def read(cls, said: Json) -> Sampling:
        """Neutral values of other parameters are accepted, all others refused: to ignore one would be a lie."""
        neutral = {"repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0, "logprobs": 0}
        known = {name: value for name, value in said.items() if name in cls.__dataclass_fields__}
        for name in said.keys() - known.keys():
            if said[name] is not None and said[name] != neutral.get(name):
                raise RefusedError(f"this engine does not support {name}={said[name]!r}")
        known["stop_token_ids"] = frozenset(known.get("stop_token_ids") or ())
        return cls(**known)


@dataclass(eq=False)
class Sampled:
    """A sequence: its prompt, what was sampled, and under which weights."""

    prompt: list[int]
    sampling: Sampling
    limit: int
    """Tokens to sample at most."""
    reply: Future[Json] = field(default_factory=Future)
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[str] = field(default_factory=list)
    generator: torch.Generator | None = None

    @property
    def tokens(self) -> list[int]:
        return self.prompt + self.ids

    def end(self, reason: str) -> None:
        spans: list[Json] = []
        for position, version in enumerate(self.versions):
            if not spans or spans[-1]["version"] != version:
                spans.append({"version": version, "start": position, "end": position})
            spans[-1]["end"] = position + 1
        content = [{"token_id": token, "logprob": value} for token, value in zip(self.ids, self.logprobs, strict=True)]
        choice = {"index": 0, "token_ids": self.ids, "logprobs": {"content": content}, "finish_reason": reason}
        usage = {"prompt_tokens": len(self.prompt), "completion_tokens": len(self.ids)}
        if not self.reply.cancelled():
            self.reply.set_result({"choices": [choice | {"weight_versions": spans}], "usage": usage})


class SlotCache:
    """Keys and values of all slots. `use` says which rows of which slots the next forward pass writes and reads."""

    is_compileable = False

    def __init__(self, slots: int, context: int) -> None:
        self._shape = (slots, context)
        self._layers: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._rows = self._positions = torch.empty(0)
        self._length = 0

    def use(self, rows: torch.Tensor, positions: torch.Tensor, length: int) -> None:
        self._rows, self._positions, self._length = rows, positions, length

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer: int, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """What transformers calls in every layer: store, and return all that may be attended to."""
        if layer not in self._layers:
            slots, context = self._shape
            shape = (slots, context, keys.shape[1], keys.shape[3])
            self._layers[layer] = (keys.new_zeros(shape), values.new_zeros(shape))
        found = []
        for stored, new in zip(self._layers[layer], (keys, values), strict=True):
            stored[self._rows[:, None], self._positions] = new.transpose(1, 2)
            found.append(stored[self._rows, : self._length].transpose(1, 2))
        return found[0], found[1]

    def get_seq_length(self, *_: Any) -> int:
        return 0


class Engine:
    """Samples for all requests together, in a thread of its own."""

    def __init__(self, model: PreTrainedModel, *, slots: int, context: int) -> None:
        self._model = model.eval()
        self._device = model.device
        self._context = context
        self._slots: list[Sampled | None] = [None] * slots
        self._cache = SlotCache(slots, context)
        ends = model.generation_config.eos_token_id if model.generation_config else None
        self._ends = frozenset([ends] if isinstance(ends, int) else ends or ())
        self._waiting: deque[Sampled] = deque()
        self._changed = threading.Condition()
        self._pause: str | None = None
        self._is_paused = self._is_stopping = False
        self.version = "0"
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    # --- requests ----------------------------------------------------------------------------------------------------

    def submit(self, prompt: Sequence[int], sampling: Sampling) -> Future[Json]:
        room = self._context - len(prompt)
        if not prompt or room < 1:
            raise RefusedError(
                f"This model's maximum context length is {self._context} tokens. However, your request has"
                f" {len(prompt)} input tokens."
            )
        sequence = Sampled(list(prompt), sampling, min(sampling.max_tokens or room, room))
        if sampling.seed is not None:
            sequence.generator = torch.Generator(self._device).manual_seed(sampling.seed)
        with self._changed:
            self._waiting.append(sequence)
            self._changed.notify_all()
        return sequence.reply

    def pause(self, mode: str) -> None:
        """Returns once nothing is sampled any more. `keep`: all wait; `abort`: they end; `wait`: they finish first."""
        if mode not in {"keep", "abort", "wait"}:
            raise RefusedError(f"mode is {mode!r}; known are keep, abort and wait")
        with self._changed:
            self._pause = mode
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._is_paused)

    def resume(self) -> None:
        with self._changed:
            self._pause, self._is_paused = None, False
            self._changed.notify_all()

    def load(self, folder: Path) -> None:
        """New weights, from safetensors with the names that the model has."""
        with self._changed:
            if not self._is_paused:
                raise RefusedError("weights are loaded while the engine is paused: POST /pause first")
            tensors = {
                name: value for file in sorted(folder.glob("*.safetensors")) for name, value in load_file(file).items()
            }
            own = self._model.state_dict()
            if unknown := sorted(tensors.keys() - own.keys()):
                raise RefusedError(f"the model has no weights {', '.join(unknown[:3])}")
            with torch.no_grad():
                for name, value in tensors.items():
                    own[name].copy_(value)
            running = [sequence for sequence in self._slots if sequence is not None]
            self._waiting.extendleft(reversed(running))
            self._slots = [None] * len(self._slots)

    def stop(self) -> None:
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()
        self._thread.join()

    # --- the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(self._has_work)
                if self._is_stopping:
                    return
                if self._pause is not None and (self._pause == "keep" or not self._running()):
                    self._is_paused = True
                    self._changed.notify_all()
                    continue
                if self._pause == "abort":
                    for slot in self._running():
                        self._leave(slot, "abort")
                    continue
                joining = [] if self._pause else self._admit()
            try:
                with torch.inference_mode():
                    self._step(joining)
            except Exception as error:  # noqa: BLE001 - whoever waits must hear of it, e.g. that memory ran out
                for slot in self._running():
                    sequence = cast("Sampled", self._slots[slot])
                    self._slots[slot] = None
                    sequence.reply.set_exception(error)

    def _has_work(self) -> bool:
        if self._is_stopping:
            return True
        return not self._is_paused and bool(self._pause or self._waiting or self._running())

    def _running(self) -> list[int]:
        return [slot for slot, sequence in enumerate(self._slots) if sequence is not None]

    def _admit(self) -> list[int]:
        """Give free slots to those who wait."""
        joined = []
        for slot, sequence in enumerate(self._slots):
            if sequence is None and self._waiting:
                self._slots[slot] = self._waiting.popleft()
                joined.append(slot)
        return joined

    def _step(self, joining: list[int]) -> None:
        """One token for every sequence. Those that join compute their prompts first."""
        longer = set(self._running()) - set(joining)
        if joining:
            self._sample(joining, [cast("Sampled", self._slots[slot]).tokens for slot in joining])
        if longer:
            slots = sorted(longer)
            self._sample(slots, [cast("Sampled", self._slots[slot]).tokens[-1:] for slot in slots])

    def _sample(self, slots: list[int], inputs: list[list[int]]) -> None:
        """`inputs` are the last tokens of each, not yet in the cache; shorter ones are padded at their ends."""
        sequences = [cast("Sampled", self._slots[slot]) for slot in slots]
        longest = max(map(len, inputs))
        starts = [len(sequence.tokens) - len(new) for sequence, new in zip(sequences, inputs, strict=True)]
        ids = torch.tensor([new + [0] * (longest - len(new)) for new in inputs], device=self._device)
        positions = torch.tensor(starts, device=self._device)[:, None] + torch.arange(longest, device=self._device)
        positions = positions.clamp(max=self._context - 1)
        length = int(positions.max()) + 1
        mask = torch.arange(length, device=self._device)[None, None, None] <= positions[:, None, :, None]
        self._cache.use(torch.tensor(slots, device=self._device), positions, length)
        last = torch.tensor([len(new) - 1 for new in inputs], device=self._device)
        hidden = self._model.base_model(
            input_ids=ids, position_ids=positions, attention_mask=mask, past_key_values=self._cache, use_cache=True
        ).last_hidden_state
        head = cast("torch.nn.Module", self._model.get_output_embeddings())
        logits = head(hidden[torch.arange(len(slots), device=self._device), last]).float()
        chosen = choose(logits, sequences)
        values = torch.log_softmax(logits, -1).gather(-1, chosen[:, None])[:, 0]
        for slot, sequence, token, value in zip(slots, sequences, chosen.tolist(), values.tolist(), strict=True):
            sequence.ids.append(token)
            sequence.logprobs.append(value)
            sequence.versions.append(self.version)
            sampling = sequence.sampling
            if token in sampling.stop_token_ids or (token in self._ends and not sampling.ignore_eos):
                self._leave(slot, "stop")
            elif len(sequence.ids) >= sequence.limit:
                self._leave(slot, "length")
            elif sequence.reply.cancelled():
                self._slots[slot] = None

    def _leave(self, slot: int, reason: str) -> None:
        sequence = cast("Sampled", self._slots[slot])
        self._slots[slot] = None
        sequence.end(reason)


def choose(logits: torch.Tensor, sequences: Sequence[Sampled]) -> torch.Tensor:
    """A token for each row, by adding Gumbel noise to what its parameters leave over."""
    greedy = torch.tensor([sequence.sampling.temperature == 0 for sequence in sequences], device=logits.device)
    heat = torch.tensor([sequence.sampling.temperature or 1.0 for sequence in sequences], device=logits.device)
    scores = torch.log_softmax(logits / heat[:, None], -1)
    for row, sequence in enumerate(sequences):
        _keep_likely(scores[row], sequence.sampling)
    noise = torch.rand_like(scores)
    for row, sequence in enumerate(sequences):
        if sequence.generator is not None:
            noise[row].uniform_(generator=sequence.generator)
    gumbel = -torch.log(-torch.log(noise.clamp(1e-20, 1 - 1e-7)))
    return torch.argmax(torch.where(greedy[:, None], scores, scores + gumbel), -1)


def _keep_likely(scores: torch.Tensor, sampling: Sampling) -> None:
    """Take top_k, top_p and min_p into account, in place."""
    if sampling.top_k > 0:
        scores[scores < torch.topk(scores, min(sampling.top_k, len(scores))).values[-1]] = -torch.inf
    if sampling.min_p > 0:
        scores[scores < scores.max() + torch.log(torch.tensor(sampling.min_p))] = -torch.inf
    if sampling.top_p < 1:
        ordered, order = torch.sort(torch.softmax(scores, -1), descending=True)
        scores[order[ordered.cumsum(-1) - ordered >= sampling.top_p]] = -torch.inf


# --- HTTP ------------------------------------------------------------------------------------------------------------


class Api:
    """The ASGI application."""

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine = engine
        self._name = name

    async def __call__(self, scope: Any, receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
        if scope["type"] != "http":
            return
        data = b""
        while True:
            event = await receive()
            data += event.get("body", b"")
            if not event.get("more_body"):
                break
        try:
            status, body = 200, await self._answer(scope, json.loads(data) if data else {})
        except RefusedError as error:
            status, body = 400, {"error": {"message": str(error), "type": "BadRequestError", "code": 400}}
        except LookupError:
            status, body = 404, {"error": {"message": f"nothing at {scope['path']}", "code": 404}}
        except Exception as error:  # noqa: BLE001 - the client's retries decide
            status, body = 500, {"error": {"message": f"{type(error).__name__}: {error}", "code": 500}}
        await send(
            {"type": "http.response.start", "status": status, "headers": [(b"content-type", b"application/json")]}
        )
        await send({"type": "http.response.body", "body": json.dumps(body).encode()})

    async def _answer(self, scope: Any, body: Json) -> Json:
        match scope["method"], scope["path"]:
            case "POST", "/inference/v1/generate":
                sampling = Sampling.read(body["sampling_params"])
                return await asyncio.wrap_future(self._engine.submit(body["token_ids"], sampling))
            case "GET", "/v1/models":
                return {"object": "list", "data": [{"id": self._name, "object": "model"}]}
            case "GET", "/health":
                return {}
            case "POST", "/pause":
                mode = dict(part.split("=") for part in scope["query_string"].decode().split("&") if part).get("mode")
                await asyncio.to_thread(self._engine.pause, mode or "abort")
            case "POST", "/resume":
                self._engine.resume()
            case "POST", "/load_weights":
                await asyncio.to_thread(self._engine.load, Path(body["path"]))
            case "POST", "/update_weight_version":
                self._engine.version = str(body["new_version"])
            case _:
                raise LookupError
        return {}


class _Server(uvicorn.Server):
    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        print(f"serving http://{host}:{port}/v1", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a folder, or a name that transformers knows")
    parser.add_argument("--name", default="policy", help="the model's name in requests")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--slots", type=int, default=256, help="sequences computed together")
    parser.add_argument("--context", type=int, default=2048, help="tokens of a prompt and its response")
    parser.add_argument("--port", type=int, default=0, help="0: a free one")
    options = parser.parse_args()
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=options.dtype).to(options.device)
    engine = Engine(model, slots=options.slots, context=options.context)
    api = Api(engine, options.name)
    _Server(uvicorn.Config(cast("Any", api), host="127.0.0.1", port=options.port, log_level="warning")).run()
    engine.stop()


if __name__ == "__main__":
    main()
