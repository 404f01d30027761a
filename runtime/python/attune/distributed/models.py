# SPDX-License-Identifier: Apache-2.0
"""enable(): spreads the sequence of a transformers model over the ranks of a group. Hooks of the model give it this
rank's tokens. model_cache.py keeps this rank's keys. Imports transformers."""
import functools
import inspect
import weakref

import torch
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface

from ..transformers.attention import _refuse
from ..transformers.mask_patterns import pattern_of
from ..transformers.mask_rule import MaskRule
from .attention import attention
from .cache_layout import Step
from .decode import attention_kvcache
from .layout import Layout
from .model_cache import SpreadCache

NAME = "attune_group"  # of the attention implementation
_GRAIN, _IGNORED = 128, -100  # tokens of a border if the sequence is long; the label of a token without loss
_OF_TOKENS = ("input_ids", "inputs_embeds", "position_ids", "token_type_ids")
_spreads = weakref.WeakKeyDictionary()  # by module of an enabled model


# ---- What the model's layers call ----


def _no_tensor(*_):
    raise ValueError("this model reads its attention mask, which no rank of a group has as a whole; must only pass it "
                     "on to its layers")


def _mask(batch_size, q_length=None, kv_length=None, mask_function=None, device=None, **_):
    pattern = pattern_of(mask_function)
    if pattern.chunks or pattern.documents or pattern.rest:
        raise ValueError("the model's attention mask is neither causal, a window nor absent; a group serves only these")
    keywords = {"mask": "causal_bottom_right"} if pattern.causal else {}
    if pattern.window is not None:
        keywords["window"] = (pattern.window - 1, None)
    elif pattern.distance is not None:
        keywords["window"] = (pattern.distance, pattern.distance)
    return MaskRule((batch_size, 1, q_length, kv_length), device, None, keywords, _no_tensor)


def _attend(module, query, key, value, attention_mask, dropout=0.0, scaling=None, softcap=None, s_aux=None,
            position_bias=None, output_attentions=False, **others):
    spread = _spreads.get(module)
    if spread is None or spread.now is None:
        raise ValueError(f"attn_implementation {NAME!r} is called outside a forward of a model that enable() was given")
    _refuse(output_attentions, others)
    if position_bias is not None:
        raise ValueError("position_bias is given, and a group does not serve it")
    if not isinstance(attention_mask, MaskRule):
        raise ValueError("the model gives no mask of attune's to its layers; a group serves models whose masks come "
                         "from transformers' create_causal_mask() and similar functions")
    choices = {**attention_mask.keywords, "scale": scaling}
    choices.update({name: x for name, x in (("softcap", softcap), ("sinks", s_aux)) if x is not None})
    q, k, v = (x.transpose(1, 2) for x in (query, key, value))
    if isinstance(spread.now, Step):
        if dropout:
            raise ValueError("dropout is given over a cache, where a group does not serve it; call model.eval()")
        return attention_kvcache(q.contiguous(), k, v, step=spread.now, **choices), None
    return attention(q, k, v, group=spread.group, layout=spread.now, dropout_p=dropout, **choices), None


# ---- What the loss and the logits of the ranks make together ----


class _Total(torch.autograd.Function):
    """The sum over ranks of a number. Each rank's gradient is that of its own part."""

    @staticmethod
    def forward(ctx, x, group):
        total = x.detach().clone()
        group.add_up(total)
        return total

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


class _Whole(torch.autograd.Function):
    """The tokens of all ranks on each rank. All ranks compute the same with them, so each takes its own gradient."""

    @staticmethod
    def forward(ctx, x, layout):
        ctx.layout = layout
        return layout.unshard(x.detach())

    @staticmethod
    def backward(ctx, gradient):
        return ctx.layout.shard(gradient), None


class GradientSums:
    """Adds the gradients of parameters over the ranks, at the end of each backward."""

    def __init__(self, parameters, group):
        self.parameters, self.group, self.found = list(parameters), group, {}
        for number, parameter in enumerate(self.parameters):
            parameter.register_hook(functools.partial(self._take, number))

    def _take(self, number, gradient):
        if not self.found:
            torch.autograd.Variable._execution_engine.queue_callback(self._finish)
        self.found[number] = gradient, self.parameters[number].grad is not None
        return torch.zeros_like(gradient)  # the sum follows in _finish()

    def _finish(self):
        found, self.found = self.found, {}
        for dtype in dict.fromkeys(one.dtype for one in self.parameters):
            numbers = [number for number, one in enumerate(self.parameters) if one.dtype == dtype]
            parts = [found[number][0] if number in found else torch.zeros_like(self.parameters[number])
                     for number in numbers]
            flat = torch.cat([part.flatten() for part in parts])
            self.group.add_up(flat)
            for number, total in zip(numbers, flat.split([part.numel() for part in parts])):
                parameter, total = self.parameters[number], total.view_as(self.parameters[number])
                if number in found and found[number][1]:
                    parameter.grad.add_(total)
                elif parameter.grad is None:
                    parameter.grad = total.clone()
                else:  # zeros of _take(), or gradients that other ranks alone have
                    parameter.grad.add_(total)


class Spread:
    """An enabled model. now: the Layout of the forward that runs, or the Step of a forward over caches."""

    def __init__(self, model, group):
        self.group, self.now, self.layouts = group, None, {}
        names = inspect.signature(model.forward).parameters
        self.cache_name = "cache" if "cache" in names else "past_key_values"
        self.config = model.config

    def layout(self, seqlen):
        """Returns zigzag ranges. Unlike group.layout(), short sequences have short ranges, so no rank is without."""
        if seqlen not in self.layouts:
            world, parts = self.group.world, 2 * self.group.world
            grain = _GRAIN if seqlen >= _GRAIN * parts else 1
            border = [seqlen * i // parts // grain * grain for i in range(parts)] + [seqlen]
            first, second = ([(border[i], border[i + 1]) for i in order]
                             for order in (range(world), range(parts - 1, world - 1, -1)))
            text = "/".join(f"{a}-{b}+{c}-{d}" if b < c else f"{a}-{d}" for (a, b), (c, d) in zip(first, second))
            self.layouts[seqlen] = Layout(self.group, seqlen, None, text)
        return self.layouts[seqlen]

    def before(self, module, args, kwargs):
        if len(args) > 1:
            raise ValueError(f"{len(args)} arguments are given by position; must be named, but for the first")
        kwargs = dict(kwargs, input_ids=args[0]) if args else dict(kwargs)
        x = kwargs.get("input_ids") if kwargs.get("input_ids") is not None else kwargs.get("inputs_embeds")
        mask = kwargs.pop("attention_mask", None)
        if mask is not None and (mask.dim() != 2 or not bool(mask.all())):
            raise ValueError("attention_mask hides tokens; must be None or ones: a group serves no padding")
        length, cache = x.shape[1], kwargs.pop(self.cache_name, None)
        records = torch.is_grad_enabled() and module.training
        uses_cache = kwargs.get("use_cache", getattr(self.config, "use_cache", False)) and not records
        self.labels = kwargs.pop("labels", None)
        if cache is None or cache.get_seq_length() == 0:
            cache = SpreadCache(self.group) if uses_cache else None
        elif not isinstance(cache, SpreadCache):
            raise ValueError(f"{self.cache_name} holds keys that an enabled model did not write; must be empty")
        if cache is not None and (cache.get_seq_length() or length < 2 * self.group.world):
            if self.labels is not None:
                raise ValueError("labels are given with keys in a cache; must be without one")
            self.now, self.whole = cache.begin(x.shape[0], length, x.device), None
            return (), {**kwargs, self.cache_name: cache}
        if length < 2 * self.group.world:
            raise ValueError(f"the input has {length} tokens; must have at least {2 * self.group.world}, two a rank")
        self.now = self.whole = self.layout(length)
        if cache is not None:
            cache.begin_with(self.now)
        return (), self.shares(kwargs, x, length, cache)

    def shares(self, kwargs, x, length, cache):
        """Returns this rank's tokens of the arguments."""
        layout = self.now
        for name, given in kwargs.items():
            if isinstance(given, torch.Tensor) and name not in _OF_TOKENS and length in given.shape[1:]:
                raise ValueError(f"{name} is given for each token, and a group does not serve it; must be left out")
        made = {name: layout.shard(kwargs[name]) for name in _OF_TOKENS if kwargs.get(name) is not None}
        if "position_ids" not in made:
            made["position_ids"] = layout.positions(x.device)[None].expand(x.shape[0], -1)
        self.keeps = kwargs.get("logits_to_keep", 0)
        if not isinstance(self.keeps, int) or self.keeps not in (0, 1):
            raise ValueError(f"logits_to_keep is {self.keeps}; must be 0 or 1 in a group")
        self.items = kwargs.pop("num_items_in_batch", None)
        ones = torch.ones(x.shape[0], layout.length, dtype=torch.bool, device=x.device)  # so nothing looks like packing
        made.update(attention_mask=ones, use_cache=cache is not None)
        return {**kwargs, **made, self.cache_name: cache}

    def after(self, module, args, kwargs, output):
        layout, self.whole = self.whole, None
        if layout is None or not hasattr(output, "keys"):
            return output
        fields = dict(output.items())
        name = "logits" if "logits" in fields else "last_hidden_state"
        if self.labels is not None:
            fields = {"loss": self.loss(module, fields[name], layout), **fields}
        elif self.keeps == 1:
            fields[name] = self.last(fields[name], layout)
        else:
            fields[name] = _Whole.apply(fields[name], layout)
        return type(output)(**fields)

    def loss(self, module, logits, layout):
        """Returns the loss of the whole sequence. Each rank adds that of its own tokens."""
        shifted = torch.nn.functional.pad(self.labels, (0, 1), value=_IGNORED)[..., 1:].contiguous()
        items = (shifted != _IGNORED).sum() if self.items is None else self.items
        mine = layout.shard(shifted).contiguous()
        loss = module.loss_function(logits=logits, labels=mine, shift_labels=mine, num_items_in_batch=items,
                                    vocab_size=logits.shape[-1])
        return _Total.apply(loss, self.group)

    def last(self, logits, layout):
        """Returns the logits of the sequence's last token."""
        owner = next(rank for rank, ranges in enumerate(layout.ranges) if ranges and ranges[-1][1] == layout.seqlen)
        made = logits.detach().contiguous()
        self.group.broadcast(made, owner)
        return made


@functools.cache
def _register():
    AttentionInterface.register(NAME, _attend)
    AttentionMaskInterface.register(NAME, _mask)


def spread(model, group, sum_gradients):
    if any(module in _spreads for module in model.modules()):
        raise ValueError("the model is enabled already; must be given to enable() once")
    _register()
    model.set_attn_implementation(NAME)
    made = Spread(model, group)
    for module in model.modules():
        _spreads[module] = made
    model.register_forward_pre_hook(made.before, with_kwargs=True)
    model.register_forward_hook(made.after, with_kwargs=True)
    if sum_gradients:
        made.sums = GradientSums([x for x in model.parameters() if x.requires_grad], group)
    return model
