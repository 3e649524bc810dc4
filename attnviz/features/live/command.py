"""attnviz live: a page that answers, from a server or with the model inside."""

import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from attnviz.cli.destinations import PAGES, check_own, save_page
from attnviz.cli.places import note, write_bytes
from attnviz.commands.command import OUTPUT, Run, command
from attnviz.core.errors import ModelError, UsageError
from attnviz.core.notices import notices_to
from attnviz.core.options import LENS_NAMES, Options, Origin
from attnviz.core.options.option import opt, rare
from attnviz.models.open import POCKET, check_origin, find_model
from attnviz.storage.writing import check_writable

MEANING = (
    "everyone who can reach this machine and has the address can run its models and send texts; "
    "nothing is encrypted on the way"
)
"""What it means to listen on a network."""
NOTHING = Origin(top=0)  # the reader said nothing of where attention comes from
THIS_MACHINE = "127.0.0.1"
LOOPBACK = (THIS_MACHINE, "localhost", "[::1]")
"""Names of this machine."""


@command("model", "compute", also=("open_page", "overwrite"), report=("said",))
def live(
    *,
    output: Path | None = opt(
        OUTPUT,
        "--output -o FILE",
        "Write the page instead, with the model 'pocket' inside: .html. It needs no server.",
    ),
    port: int = opt(
        OUTPUT, "--port N", "Port to listen on; 0 takes a free one.", default=0, min=0, max=65535
    ),
    host: str = rare(OUTPUT, "--host ADDRESS", "Address to listen on.", default=THIS_MACHINE),
    allow_network: bool = rare(
        OUTPUT, "--allow-network", "Also answer other machines, at the address of --host."
    ),
    **options: Any,
) -> None:
    """Serve a page that answers as you type, with any model.

    Switch parts of the model off in it, and see what changes.

    attnviz live --open

    attnviz live --model pocket-lm --port 8700

    attnviz live -o live.html

    stdout gets the address, with the token that opens it; Ctrl-C ends it. Programs ask it in JSON:
    /openapi.json says how.
    """
    how = Run("live", options).options
    if output is not None:
        others = {"--port": port, "--host": host != THIS_MACHINE, "--allow-network": allow_network}
        _write_page(output, others, how)
        return
    check_origin(how.origin, "self")
    if not _is_loopback(host) and not allow_network:
        raise UsageError(
            f"--host {host} is no address of this machine alone: {MEANING}. Add --allow-network if "
            "that is meant"
        )
    find_model(how.origin)
    try:
        from attnviz.features.live import serving
    except ModuleNotFoundError as error:
        raise ModelError(
            f"'attnviz live' needs the package {error.name}: pip install 'attnviz[live]', or write "
            "a page with the model inside by -o live.html"
        ) from error
    from attnviz.features.live.answering import Answers
    from attnviz.renderers.page.document import assemble, live_document

    with closing(serving.open_listener(host, port)) as listener:
        number = listener.getsockname()[1]
        name = socket.gethostname() if host in ("0.0.0.0", "::") else host
        place = f"[{name}]" if ":" in name else name
        policy = serving.AccessPolicy(
            frozenset({*LOOPBACK, place.lower()}), number, wide=allow_network
        )
        address = f"http://{place}:{number}/?token={policy.token}"
        write_bytes(f"{address}\n".encode())
        if not how.output.quiet:
            note(f"Ctrl-C ends it{'' if _is_loopback(host) else f'; {MEANING}'}")
        answers = Answers(how.origin)
        names = [one["name"] for one in answers.models(None if how.output.quiet else note)]
        document = live_document("attnviz live", LENS_NAMES, names, answers.pictures())
        page = assemble(document, {}, "serve")
        with opened_in_browser(address) if how.output.open_page else nullcontext():
            serving.serve(listener, answers, policy, page)


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


@contextmanager
def opened_in_browser(address: str) -> Iterator[None]:
    """Open an address in a browser through a file, since other users see a program's arguments."""
    import webbrowser

    with NamedTemporaryFile("w", suffix=".html") as file:
        file.write(f'<meta http-equiv="refresh" content="0;url={address}">')
        file.flush()
        if not webbrowser.open(Path(file.name).as_uri()):
            note("no browser was found: open the address yourself")
        yield


TRANSLATIONS = (
    "Le chat s'assit sur le tapis.",
    "Il ferma la porte et partit sans mot.",
    "Nous sommes allés au marché pour acheter du pain.",
    "Les enfants jouent dans le jardin.",
    "Je ne sais pas ce que vous voulez de moi.",
    "Demain, il pleuvra toute la journée.",
    "Mon frère travaille dans un hôpital.",
    "Ils ont vécu ici depuis dix ans.",
    "Peux-tu me dire où se trouve la gare ?",
    "Le vieil homme nous a raconté une longue histoire.",
    "Personne ne connaissait la réponse à la question.",
    "Le livre que tu m'as donné est très bon.",
    "Elle a deux chiens et un chat.",
    "Le train part à sept heures du matin.",
    "Je voudrais une tasse de café, s'il vous plaît.",
    "C'était le meilleur jour de ma vie.",
)
"""What the pocket model writes of each sentence of REFERENCE: to write them anew takes a second."""


def read_sample_atlas() -> dict[str, Any]:
    """What each head of the pocket model does in sentences and its own translations of them."""
    from attnviz.features.atlas.page import atlas_document
    from attnviz.features.explain.search import REFERENCE
    from attnviz.features.heads.command import heads

    pairs = [*zip(REFERENCE, TRANSLATIONS, strict=True)]
    document = atlas_document(heads(pairs, cross=True, atlas=True).value, "", {})
    return document | {"notes": ["the model translated the texts itself", *document["notes"]]}


def _write_page(output: Path, others: Mapping[str, object], options: Options) -> None:
    """Write the page with the model inside."""
    if flags := [name for name, value in others.items() if value]:
        raise UsageError(f"{flags[0]} is for a server, and -o writes a page: give one of them")
    if replace(options.origin, model=None) != NOTHING or options.origin.model not in (None, POCKET):
        raise UsageError(
            f"-o writes a page with the model '{POCKET}' inside: leave --model and its options out"
        )
    if output.suffix.lower() not in PAGES:
        raise UsageError(f"--output '{output}' must end in {' or '.join(PAGES)}")
    check_writable(output)
    if not options.output.overwrite:
        check_own(output)
    start = time.perf_counter()
    from attnviz.features.live.packed import pack_model
    from attnviz.renderers.page.document import live_page

    if sys.stderr.isatty() and not options.output.quiet:
        note("packing the model, and reading sentences for what its heads do in other texts")
    data = live_page("attnviz live", pack_model(), read_sample_atlas()).encode()
    with notices_to(None if options.output.quiet else note):
        path = save_page(output, data, in_browser=options.output.open_page)
    if options.output.verbose:
        note(f"wrote '{path}', {len(data) / 1e6:.1f} MB, in {time.perf_counter() - start:.2f} s")
