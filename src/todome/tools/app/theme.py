"""Theme of gradio's own parts: one green, the fonts of the system. Paper and ink are those of look.css."""

import gradio as gr

SANS = ("system-ui", "-apple-system", "Segoe UI", "Roboto", "Helvetica Neue", "sans-serif")
MONO = ("ui-monospace", "SFMono-Regular", "Consolas", "Liberation Mono", "monospace")
PAPER, NIGHT = "#fbfaf7", "#151614"
COLOURS = {  # of gradio's parts, by the variables of look.css, which has them for light and dark
    "body_text_color": "ink",
    "body_text_color_subdued": "grey",
    "background_fill_primary": "page",
    "background_fill_secondary": "raised",
    "border_color_primary": "line",
    "block_info_text_color": "grey",
    "block_title_text_color": "ink",
    "block_label_text_color": "ink",
    "input_background_fill": "field",
    "input_border_color": "edge",
    "checkbox_label_background_fill_selected": "tint",
    "checkbox_background_color_selected": "accent",
    "checkbox_border_color_selected": "accent",
    "button_primary_background_fill": "accent",
    "button_primary_background_fill_hover": "accent-strong",
    "button_primary_text_color": "page",
    "button_secondary_background_fill": "raised",
    "color_accent": "accent",
    "slider_color": "accent",
}


def theme() -> gr.themes.Base:
    hues = {"primary_hue": gr.themes.colors.emerald, "neutral_hue": gr.themes.colors.stone}
    both = {name: f"var(--{value})" for name, value in COLOURS.items()}
    both |= {"block_background_fill": "transparent", "checkbox_label_background_fill": "transparent"}
    dark = {f"{name}_dark": value for name, value in both.items()}
    paper = {"body_background_fill": PAPER, "body_background_fill_dark": NIGHT}  # also before the style is there
    base = gr.themes.Base(**hues, font=SANS, font_mono=MONO)
    return base.set(**both, **dark, **paper, input_border_width="1px", block_border_width="0px", block_padding="0px")
