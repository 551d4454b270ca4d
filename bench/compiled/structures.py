"""The decoders of the listed reward models, each shape once, and the mesh planned for it."""

import dataclasses

from bench.compiled import chips
from bench.compiled.programs import SEARCHES, Work, merged_replies
from bench.support.heads import linear_head
from configs import known_models, known_shapes
from configs.known_models import ModelSpec
from engine.convert.hf_config import decoder_config
from engine.errors import AssayError
from engine.models.config import DecoderConfig, Rope
from engine.planning import plans
from engine.planning.machines import Devices
from engine.planning.memory import Model
from engine.planning.plans import Plan, Subject
from engine.planning.work import Named, SearchWork, SweepWork

DTYPE = "bfloat16"


@dataclasses.dataclass(frozen=True)
class Asked:
    """What a plan is made of: a sweep, a search, and the settings that are named."""

    sweep: SweepWork
    search: SearchWork
    named: Named


@dataclasses.dataclass(frozen=True)
class Structure:
    """A decoder, under the base and size of the first listed model that has it.

    Attributes:
      name: such as `Llama 3.1 8B`.
      slugs: of the models that have it.
      decoder: of the first of them. Others may differ in the numbers of their rotary embedding.
      own: positions of a candidate.
    """

    name: str
    slugs: tuple[str, ...]
    decoder: DecoderConfig
    own: int

    def with_layers(self, layers: int) -> "Structure":
        """The same with fewer layers."""
        window = self.decoder.window_layers[:layers]
        decoder = dataclasses.replace(self.decoder, num_layers=layers, window_layers=window)
        return dataclasses.replace(self, decoder=decoder)


def listed() -> list[Structure]:
    """All structures, in the order of configs/known_models.py."""
    found: dict[DecoderConfig, Structure] = {}
    for slug, spec in (known_models.MODELS | known_models.NEXT).items():
        structure = _structure(slug, spec)
        # Neither numbers of the rotary embedding nor the longest context change a program.
        shape = dataclasses.replace(structure.decoder, rope=Rope(theta=1.0), max_positions=1)
        first = found.setdefault(shape, dataclasses.replace(structure, slugs=()))
        found[shape] = dataclasses.replace(first, slugs=(*first.slugs, slug))
    return list(found.values())


def named(slugs: list[str]) -> list[Structure]:
    """The structures of some models, each once; all of them for `all`.

    Raises:
      AssayError: a name that is not listed.
    """
    structures = listed()
    known = {slug for structure in structures for slug in structure.slugs}
    if unknown := [slug for slug in slugs if slug not in known and slug != "all"]:
        raise AssayError(f"models={unknown[0]!r}; allowed: all, {', '.join(sorted(known))}")
    return [s for s in structures if "all" in slugs or {*slugs} & {*s.slugs}]


def planned(structure: Structure, slice_: str, asked: Asked | None = None) -> Plan:
    """What `assay plan` answers for the chips of a slice.

    Args:
      structure: the model.
      slice_: chip and shape of the slice.
      asked: what is to be computed; None: what `work` gives.
    """
    (_, kind), count = chips.chip_of(slice_), chips.count_of(slice_)
    decoder = structure.decoder
    subject = Subject(structure.name, decoder, (linear_head(decoder),), DTYPE)
    devices = Devices(f"{kind.name}-{count}", count, kind)
    asked = asked or work(structure)
    return plans.plan(subject, devices, asked.sweep, asked.search, asked.named)


def mesh_of(plan: Plan, name: str) -> Model:
    """The model on the mesh that is planned for a pass: a search has its own."""
    return plan.search.model if name in SEARCHES and plan.search else plan.model


def work(structure: Structure) -> Asked:
    """A sweep and the default search, of the page's sizes; the planner chooses mesh and step."""
    sizes = {field.name: field.default for field in dataclasses.fields(Work)}
    search = SearchWork(
        prefix=sizes["prefix"],
        suffix=structure.own - 1,
        length=sizes["length"],
        candidates=sizes["searched"],
        attempts=1,
        merged=merged_replies("gcg-merged", sizes["searched"]),
    )
    sweep = SweepWork(prefix=sizes["prefix"], own=structure.own)
    return Asked(sweep, search, Named(dtype=DTYPE))


def _structure(slug: str, spec: ModelSpec) -> Structure:
    decoder = decoder_config(known_shapes.config_json(spec))
    name = f"{spec.base} {spec.size_b:g}B"
    return Structure(name, (slug,), decoder, known_shapes.own_positions(spec))
