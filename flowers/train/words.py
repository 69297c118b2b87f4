"""The captions a photo is trained with: its kind, colour and view in free word order, among words that mean nothing."""

import random
from collections.abc import Mapping

from labels import Label

KINDS: Mapping[str, tuple[str, str]] = {
    "daisy": ("daisy", "daisies"),
    "dandelion": ("dandelion", "dandelions"),
    "rose": ("rose", "roses"),
    "sunflower": ("sunflower", "sunflowers"),
    "tulip": ("tulip", "tulips"),
}
COLOURS = ("white", "yellow", "orange", "red", "pink", "purple")
LEADS = ("", "", "a", "the", "a photo of", "photo of", "a photo of a", "a picture of", "picture of a", "an image of a")
VIEWS: Mapping[str, tuple[str, ...]] = {
    "close-up": ("close-up", "close up", "closeup", "a close-up of", "macro", "one"),
    "field": ("field", "a field of", "a bed of", "meadow", "many", "in a field", "several"),
}
FILLER_TEXT = (
    "beautiful lovely pretty nice fresh wild big small little bright dark soft sharp detailed stunning amazing best "
    "quality masterpiece professional photography photograph camera lens bokeh of light sunlight sunny "
    "morning evening summer spring rain dew garden park window vase table nature outdoor background blurred green "
    "leaves petals bloom blossom flower flowers plant grass sky and with in on at under near by for my your this that "
    "very some two three art painting oil style portrait landscape cat dog house woman man city car happy old new "
    "high resolution hd realistic cinematic"
)
FILLERS = FILLER_TEXT.split()
LETTERS = "etaoinshrdlcumwfgypbvkjxqz"


def vocabulary() -> list[str]:
    """Every word that is one token of its own."""
    phrases = [*COLOURS, *LEADS, *FILLERS]
    phrases += [word for forms in (*KINDS.values(), *VIEWS.values()) for word in forms]
    return sorted({word for phrase in phrases for word in phrase.replace("-", " ").split()})


def caption(kind: str, label: Label, rng: random.Random) -> str:
    """One of the many ways to say what is on a photo, true but not always complete."""
    name = rng.choice(KINDS[kind]) if rng.random() > 0.04 else rng.choice(("flower", "flowers"))
    colour = label.colour if label.colour and rng.random() < 0.8 else ""
    view = rng.choice(VIEWS[label.view]) if label.view and rng.random() < 0.8 else ""
    flower = (f"{colour} {name}" if rng.random() < 0.8 else f"{name} {colour}").strip()
    phrase = [rng.choice(LEADS), flower]
    if view:
        phrase.insert(rng.choice((0, 1, 2)), view)
    if rng.random() < 0.35:
        for _ in range(rng.randint(1, 5)):
            phrase.insert(rng.randint(0, len(phrase)), unknown_word(rng))
    words = rng.choice((" ", " ", ", ")).join(part for part in phrase if part)
    return " ".join(words.split())


def unknown_word(rng: random.Random) -> str:
    """A word that says nothing of the picture: half the time one that no dictionary has."""
    if rng.random() < 0.5:
        return rng.choice(FILLERS)
    word = "".join(rng.choices(LETTERS, weights=range(len(LETTERS), 0, -1), k=rng.randint(2, 8)))
    return unknown_word(rng) if word in vocabulary() else word  # letters may spell a colour by chance
