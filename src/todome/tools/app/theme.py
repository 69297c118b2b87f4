"""Theme of gradio's own parts: dark on paper, one green, fonts of the system. style.css does the rest."""

import gradio as gr

SANS = ("system-ui", "-apple-system", "Segoe UI", "Roboto", "Helvetica Neue", "sans-serif")
MONO = ("ui-monospace", "SFMono-Regular", "Consolas", "Liberation Mono", "monospace")
PAPER, NIGHT = "#fbfaf7", "#151614"
GREEN = gr.themes.Color(
    c50="#eaf5f1",
    c100="#d3ebe3",
    c200="#a9d8c9",
    c300="#7cc6b0",
    c400="#5cc0a6",
    c500="#2a8f77",
    c600="#0b6b57",
    c700="#095a49",
    c800="#08483b",
    c900="#07382f",
    c950="#052720",
)


def theme() -> gr.themes.Base:
    """Colours come from the variables of style.css, which has them for light and dark."""
    base = gr.themes.Base(
        primary_hue=GREEN,
        neutral_hue=gr.themes.colors.stone,
        font=SANS,
        font_mono=MONO,
        radius_size=gr.themes.sizes.radius_md,
    )
    both = {
        "body_text_color": "var(--ink)",
        "body_text_color_subdued": "var(--grey)",
        "background_fill_primary": "var(--page)",
        "background_fill_secondary": "var(--raised)",
        "border_color_primary": "var(--line)",
        "border_color_accent": "var(--accent)",
        "color_accent_soft": "var(--tint)",
        "block_background_fill": "transparent",
        "block_border_color": "transparent",
        "block_label_text_color": "var(--ink)",
        "block_title_text_color": "var(--ink)",
        "block_info_text_color": "var(--grey)",
        "block_label_background_fill": "transparent",
        "input_background_fill": "var(--field)",
        "input_border_color": "var(--edge)",
        "input_border_color_focus": "var(--accent)",
        "input_placeholder_color": "var(--grey)",
        "slider_color": "var(--accent)",
        "button_primary_background_fill": "var(--accent)",
        "button_primary_background_fill_hover": "var(--accent-strong)",
        "button_primary_text_color": "var(--page)",
        "button_primary_border_color": "var(--accent)",
        "button_secondary_background_fill": "transparent",
        "button_secondary_background_fill_hover": "var(--tint)",
        "button_secondary_text_color": "var(--ink)",
        "button_secondary_border_color": "var(--edge)",
        "checkbox_background_color": "var(--field)",
        "checkbox_background_color_selected": "var(--accent)",
        "checkbox_border_color": "var(--edge)",
        "checkbox_border_color_focus": "var(--accent)",
        "checkbox_border_color_selected": "var(--accent)",
        "checkbox_label_background_fill": "transparent",
        "checkbox_label_background_fill_hover": "var(--tint)",
        "checkbox_label_background_fill_selected": "var(--accent)",
        "checkbox_label_border_color": "var(--edge)",
        "checkbox_label_border_color_selected": "var(--accent)",
        "checkbox_label_text_color": "var(--ink)",
        "checkbox_label_text_color_selected": "var(--page)",
    }
    return base.set(
        **both,
        **{f"{name}_dark": value for name, value in both.items()},
        body_background_fill=PAPER,  # these two are also used before the style is there
        body_background_fill_dark=NIGHT,
        block_border_width="0px",
        block_padding="0px",
        block_title_text_weight="500",
        block_label_text_weight="500",
        button_large_text_weight="600",
        button_large_radius="8px",
        input_border_width="1px",
        checkbox_label_gap="0px",
        input_shadow="none",
        input_shadow_focus="none",
        block_shadow="none",
        layout_gap="20px",
    )
