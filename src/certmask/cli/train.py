"""``certmask train``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from certmask.cli.options import DeviceOption, LevelsOption, WeightsOption

if TYPE_CHECKING:
    from certmask.data import Dataset
    from certmask.threat import Size
    from certmask.training import Lessons, Recipe
    from certmask.zoo import Card


def train(
    data: Annotated[
        str, typer.Argument(help="Training photos: folder of class folders, tar, or CIFAR-10 (FOLDER:train).")
    ],
    validation: Annotated[str, typer.Option("--validation", help="Held-out photos, in any form that `certify` takes.")],
    model: Annotated[str, typer.Option("--model", help="A timm name, or a .safetensors with a card to start from.")],
    out: Annotated[Path, typer.Option("--out", help="Folder for checkpoints, card and curves; continued if there.")],
    weights: WeightsOption = None,
    pretrained: Annotated[bool, typer.Option("--pretrained", help="Start from timm's pretrained weights.")] = False,
    image: Annotated[str | None, typer.Option("--image", help="Input size; default: the model's own.")] = None,
    crop: Annotated[
        float | None, typer.Option("--crop", help="Share of the photo that is kept; default: the model's own.")
    ] = None,
    cutout: Annotated[
        str,
        typer.Option(
            "--cutout",
            help="none, random (the paper's), greedy, pairs of masks that hide --patch, bands: all but one is hidden.",
        ),
    ] = "random",
    band: Annotated[
        int | None, typer.Option("--band", min=1, help="Width in pixels of what --cutout bands leaves.")
    ] = None,
    levels: LevelsOption = None,
    tries: Annotated[
        int, typer.Option("--tries", min=1, help="Pairs of masks tried for each view; the worst is learnt.")
    ] = 1,
    one_cover: Annotated[
        bool, typer.Option("--one-cover", help="All that are tried for a view are of one level: each has its turn.")
    ] = False,
    recall: Annotated[
        float, typer.Option("--recall", min=0.0, help="How much oftener masks come that were hard for a photo before.")
    ] = 0.0,
    views: Annotated[int, typer.Option("--views", min=1, help="Masked views of a picture in one batch.")] = 1,
    whole: Annotated[bool, typer.Option("--whole", help="Learn the whole picture beside them.")] = False,
    agreement: Annotated[
        float, typer.Option("--agreement", help="Share of the answer about the whole picture in a view's target.")
    ] = 0.0,
    teacher: Annotated[
        list[Path] | None,
        typer.Option("--teacher", help="A .safetensors with a card; what it says of a view is learnt. Repeatable."),
    ] = None,
    taught: Annotated[
        float | None, typer.Option("--taught", help="Share of the teachers' mean answer in a target; default: 0.5.")
    ] = None,
    fill: Annotated[
        str, typer.Option("--fill", help="Colour of the masks of pairs: mean, as when deployed, or random.")
    ] = "mean",
    loss: Annotated[
        str,
        typer.Option(
            "--loss", help="plain, or provable: PatchGuard's, against --patch, for networks with local logits."
        ),
    ] = "plain",
    epochs: Annotated[int, typer.Option("--epochs", min=1)] = 10,
    batch: Annotated[int, typer.Option("--batch", min=1)] = 64,
    rate: Annotated[float | None, typer.Option("--rate", help="Default: 0.001 for ViT and MLP, else 0.01.")] = None,
    decay_every: Annotated[int, typer.Option("--decay-every", min=1, help="Divide the rate by 10 so often.")] = 5,
    weight_decay: Annotated[float, typer.Option("--weight-decay", min=0.0)] = 0.0,
    optimizer: Annotated[str, typer.Option("--optimizer", help="sgd or adamw.")] = "sgd",
    schedule: Annotated[str, typer.Option("--schedule", help="steps (the paper's) or cosine.")] = "steps",
    warm_up: Annotated[float, typer.Option("--warm-up", help="Epochs in which the rate rises from 0.")] = 0.0,
    smoothing: Annotated[float, typer.Option("--smoothing", help="Label smoothing.")] = 0.0,
    zoom: Annotated[float, typer.Option("--zoom", help="Smallest share of a side that a random crop keeps.")] = 1.0,
    shift: Annotated[int, typer.Option("--shift", help="Most pixels by which a photo is moved.")] = 0,
    colour: Annotated[
        float, typer.Option("--colour", help="By how much brightness, contrast and saturation change at most.")
    ] = 0.0,
    average: Annotated[
        float, typer.Option("--average", help="Decay of a running average of the weights, which is kept; 0: none.")
    ] = 0.0,
    seed: Annotated[int, typer.Option("--seed")] = 0,
    patch: Annotated[
        str | None,
        typer.Option("--patch", help="Patch of final figures, provable loss and pairs; default: 1/7 of the side."),
    ] = None,
    images: Annotated[int, typer.Option("--images", min=1, help="Held-out photos for the certified figures.")] = 500,
    precision: Annotated[str, typer.Option("--precision", help="Of the certified figures; see `certify`.")] = "auto",
    half: Annotated[bool, typer.Option("--half", help="Save (and measure) the weights rounded to fp16.")] = False,
    compile: Annotated[bool, typer.Option("--compile", help="Compile the network: worth it on a GPU.")] = False,
    device: DeviceOption = "auto",
) -> None:
    """Train for certificates, by default with Cutout, write a checkpoint with its card, and measure what it certifies.

    Pairs are two of the masks that certificates look through: PatchCleanser's 6×6 and zoom's --levels. Bands are for
    smoothing, the provable loss for PatchGuard.
    """
    from certmask.cli.choices import check_engine_room, pick_device
    from certmask.cli.console import out as console
    from certmask.cli.console import telling
    from certmask.cli.outputs import check_folder
    from certmask.cli.sizes import make_patch, optional_levels, parse_size
    from certmask.cli.usage import asked_rightly
    from certmask.data import Framing, class_folders, load_dataset
    from certmask.errors import UsageError
    from certmask.training import Exam, Recipe, Teachers, check_recipe, paper_rate, starting_point, train_and_examine
    from certmask.zoo import card_of

    plain = card_of(model)
    if taught is not None and not teacher:
        raise UsageError(f"expected a --teacher where {taught} of the targets are taught, got none")
    size, device = parse_size(image, "image") if image else None, pick_device(device)
    exam = Exam(make_patch(patch, size or plain.size), images, precision)
    with asked_rightly():
        recipe = Recipe(
            epochs=epochs,
            batch=batch,
            rate=paper_rate(plain.architecture) if rate is None else rate,
            decay_every=decay_every,
            weight_decay=weight_decay,
            cutout=cutout,
            seed=seed,
            optimizer=optimizer,
            schedule=schedule,
            warm_up=warm_up,
            smoothing=smoothing,
            zoom=zoom,
            shift=shift,
            band=band,
            loss=loss,
            patch=exam.patch.size if loss == "provable" or cutout == "pairs" else None,
            levels=optional_levels(levels) or (),
            tries=tries,
            one_cover=one_cover,
            recall=recall,
            views=views,
            whole=whole,
            agreement=agreement,
            fill=fill,
            colour=colour,
            average=average,
            taught=(0.5 if taught is None else taught) if teacher else 0.0,
        )
        framing = Framing(plain.crop if crop is None else crop)
    check_engine_room("torch", precision, device)
    check_folder(out)
    classes = class_folders(data)
    sets = [load_dataset(source, [(c,) for c in classes], framing) for source in (data, validation)]
    network, card = starting_point(model, classes, size, weights=weights, pretrained=pretrained, seed=seed)
    check_recipe(recipe, network, card.size)
    teachers = Teachers(teacher, classes, device, compile) if teacher else None
    height, width = card.size
    console.print(f"{card.architecture} at {height}×{width}, {len(sets[0])} photos of {len(classes)} classes, {device}")
    lessons, held_out = (_read(dataset, card.size) for dataset in sets)
    epoch = 0

    def tell(entry: dict[str, float]) -> None:
        nonlocal epoch
        epoch = int(entry["epoch"])
        _print_epoch(entry, recipe)

    with telling(lambda: f"training: {100 * epoch // epochs} %, {epoch} of {epochs} epochs"):
        card = train_and_examine(network, card, recipe, lessons, held_out, exam, out, device=device, half=half,
                                 compiled=compile, progress=tell, teachers=teachers)  # fmt: skip
    _print_figures(card, out)


def _print_epoch(entry: dict[str, float], recipe: Recipe) -> None:
    from certmask.cli.console import out
    from certmask.results.kinds import percent

    shares = {name.removesuffix("_accuracy"): share for name, share in entry.items() if name.endswith("_accuracy")}
    words = ", ".join(f"{name.replace('_', ' ')} {percent(share)} %" for name, share in shares.items())
    out.print(f"epoch {entry['epoch']:.0f}/{recipe.epochs}: loss {entry['loss']:.4f}, {words}")


def _print_figures(card: Card, folder: Path) -> None:
    from certmask.cli.console import out
    from certmask.results.kinds import percent

    metrics = card.metrics
    proved = [(name.split("_", 2)[1:], share) for name, share in metrics.items() if name.startswith("certified_")]
    certified = ", ".join(
        f"certified {guarantee} ({how.replace('_', ' ')}) {percent(share)} %" for (guarantee, how), share in proved
    )
    out.print(
        f"{metrics['images']} held-out photos, {'×'.join(map(str, metrics['patch']))} patch: "
        f"clean {percent(metrics['clean_accuracy'])} %, {certified}\n"
        f"saved in {folder / 'model.safetensors'}, with its card, curves.png and figures.jsonl"
    )


def _read(dataset: Dataset, size: Size) -> Lessons:
    """The photos, with a bar while they are read into memory."""
    from certmask.cli.console import working
    from certmask.training import read_lessons

    with working(f"reading {dataset.name}", len(dataset), "photos") as advance:
        return read_lessons(dataset, size, advance)
