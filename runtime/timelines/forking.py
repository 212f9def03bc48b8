"""``fork_run``: a tree of a store goes on as another one, beside it.

    the cut is read  ──►  contents and values are there  ──►  one commit  ──►  its runs are woken

What fails before the commit leaves nothing; with it the fork is there, whole.
"""

from collections.abc import Callable, Collection, Mapping

import anyio
from msgspec import Struct

from hubbub.hub.addressing import is_run_id
from hubbub.hub.errors import BadValue, CallerError, StoreFailed, UnknownRun
from hubbub.hub.events.descriptors import check_descriptor_size, descriptor_of_key
from hubbub.hub.events.files import kept_contents
from hubbub.hub.events.sent_items import MAX_MESSAGE_CHARS
from hubbub.hub.hub import Hub
from hubbub.hub.masking.safe_repr import SafeRepr, without_credentials
from hubbub.hub.message import Sayable, contents_said, session_message
from hubbub.hub.near_misses import kind_of
from hubbub.hub.store.journal import Commit, FoundTree
from hubbub.hub.store.reader import StoreReader
from hubbub.hub.texts import check_key_size, check_label, check_names, check_text
from hubbub.hub.values import check_seq
from hubbub.runtime.timelines.cut import CutTree, cut_tree
from hubbub.runtime.timelines.fork import ForkedAs, forked, names_of

__all__ = ["ForkWanted", "Forked", "fork_run"]


class ForkWanted(SafeRepr, frozen=True, kw_only=True):
    """Which run is forked where, and how the fork differs from it."""

    run_id: str
    seq: int | None = None
    message: Sayable | None = None
    agent: str = ""
    model: str = ""
    """The name of one: a model object is on no record."""
    prompt: str = ""
    env: Mapping[str, str] = {}
    session_key: str = ""
    new_run_id: str = ""


class Forked(Struct, frozen=True, kw_only=True):
    """A fork: its root, of which run after which record; how many runs and records it has."""

    run_id: str
    of_run_id: str
    of_seq: int
    agent: str
    runs: int
    records: int


async def fork_run(
    hub: Hub, wanted: ForkWanted, check: Callable[[str], object] | None = None
) -> Forked:
    """Fork a root with all below it; durable when this returns.

    ``check`` is called before anything is written, with the name of the agent that goes on, and
    raises what is wrong with that.

    Raises ``UnknownRun``, ``NoSuchRecord``, ``NoFork``, ``BadValue`` for a message that cannot be
    sent, ``CallerError`` for an id or a key that another run has, ``StoreFailed``.
    """
    _check(wanted)
    message = None if wanted.message is None else session_message(wanted.message)
    contents = contents_said(wanted.message)

    def look(store: StoreReader) -> CutTree:
        return cut_tree(store, wanted.run_id, wanted.seq)

    await hub.journal.flush()
    cut = await hub.journal.inspect(look)
    _check_sides(cut, wanted)
    if check is not None:
        root = cut.runs[wanted.run_id]
        check(wanted.agent or root.thread.agent or root.opened.open_agent or root.opened.agent)
    now, ids = hub.ports.clock.now(), hub.ports.ids
    given = ForkedAs(
        run_id=wanted.new_run_id or ids.run_id(now), at=now, session_key=wanted.session_key,
        agent=wanted.agent, model=wanted.model, prompt=wanted.prompt, message=message,
    )  # fmt: skip
    names = names_of(cut, given, lambda: ids.run_id(now))
    tree = forked(cut, given, names)
    await _check_id(hub, wanted.new_run_id)
    await _keep_contents(hub, wanted.run_id, tree, contents)
    await _check_id(hub, wanted.new_run_id)  # Nothing is waited for between that and the commit.
    _keep_values(hub, names, wanted)
    try:
        await _written(hub, tree, minted={*names.values()} - {wanted.new_run_id})
    except (CallerError, StoreFailed):
        if wanted.new_run_id and await hub.journal.info(wanted.new_run_id) is None:
            hub.addressing.drop_values(wanted.new_run_id)
        raise
    return Forked(
        run_id=given.run_id, of_run_id=wanted.run_id, of_seq=cut.seq, agent=tree.root.agent,
        runs=len(tree.runs), records=len(tree.events),
    )  # fmt: skip


def _check(wanted: ForkWanted) -> None:
    """Raise ``BadValue`` for what no store could keep."""
    check_label("run_id", wanted.run_id)
    check_names(agent=wanted.agent, session_key=wanted.session_key)
    _check_model(wanted.model)
    check_text("prompt", wanted.prompt)
    if len(wanted.prompt) > MAX_MESSAGE_CHARS:
        raise BadValue("prompt", f"longer than {MAX_MESSAGE_CHARS:,} characters")
    check_key_size("session_key", wanted.session_key)
    if wanted.session_key:
        check_descriptor_size(descriptor_of_key(wanted.session_key))
    check_seq(wanted.seq)
    new = wanted.new_run_id
    if new != "" and not (isinstance(new, str) and is_run_id(new)):
        expected = "expected 1 to 64 letters, digits, '-' and '_', as in a UUID"
        raise BadValue("new_run_id", expected)


async def _check_id(hub: Hub, run_id: str) -> None:
    """Raise ``CallerError`` for an id that a run has, or is about to have."""
    if run_id in hub.dispatcher.answers.uncommitted:
        await hub.journal.flush()
    if run_id and await hub.journal.info(run_id) is not None:
        raise CallerError(f"run {run_id} is there already; give another id")


def _check_model(model: object) -> None:
    if not isinstance(model, str):
        what = f"expected a name, which is on record, not {kind_of(model)}"
        raise BadValue("model", f"{what}; give Runtime(models={{NAME: …}}), and the name")
    check_label("model", model)
    if without_credentials(model) != model:
        what = "its address has a password, which would be on record"
        raise BadValue("model", f"{what}; give Runtime(models={{NAME: …}}), and the name")


def _check_sides(cut: CutTree, wanted: ForkWanted) -> None:
    root = cut.runs[wanted.run_id].thread
    if root.two_sided and not wanted.agent and (wanted.model or wanted.prompt):
        what = "prompt" if wanted.prompt else "model"
        raise BadValue(what, f"{root.agent!r} has two sides; give agent=… with other prompts")


async def _keep_contents(
    hub: Hub, old_root: str, tree: FoundTree, brought: Mapping[str, bytes]
) -> None:
    """Have what the fork's files and parts hold where it looks for them."""
    blobs, root = hub.ports.blobs, tree.root.run_id
    for digest, content in brought.items():
        await blobs.put(root, digest, content)
    digests = {ref.digest for event in tree.events for ref in kept_contents(event)}
    if getattr(hub.journal, "blobs", None) is blobs:  # It keeps each once, whoever has it.
        if (keep := getattr(blobs, "keep", None)) is not None:
            await keep(root, digests)
            if await hub.journal.info(old_root) is None:  # They may have gone with it, before.
                raise UnknownRun(old_root)
        return
    for digest in digests:
        kept = await blobs.get(old_root, digest)
        if kept is not None:
            await blobs.put(root, digest, kept)


def _keep_values(hub: Hub, names: Mapping[str, str], wanted: ForkWanted) -> None:
    """Give each run the values that the old one has now, and the root those that are given."""
    known = hub.addressing
    for name, value in wanted.env.items():
        known.give_value(names[wanted.run_id], name, value)
    for old, new in names.items():
        known.copy_values(old, new)


async def _written(hub: Hub, tree: FoundTree, *, minted: Collection[str]) -> None:
    """Submit the fork; returns when it is on record, and its runs go on.

    Of ids that are ``minted`` nobody else can have values.

    Who is cancelled meanwhile does not learn whether it came to be, as with any other commit.
    """
    commit, done = Commit(found=tree, notes=tree.notes), anyio.Event()

    def after(commit: Commit) -> None:
        owner = hub.dispatcher.owner
        if commit.error:
            for run_id in minted:
                hub.addressing.drop_values(run_id)
        elif owner is not None:
            owner.came_in(tree)
        done.set()

    commit.after = after
    hub.pipeline.submit(commit)
    await done.wait()
    if commit.error == "conflict":
        key = tree.root.session_key
        what = f"run {tree.root.run_id}" + (f", or an open run of the key {key!r}," if key else "")
        raise CallerError(f"{what} is there already; give another one")
    if commit.error:
        raise StoreFailed(hub.journal.name, commit.error)
