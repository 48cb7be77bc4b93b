"""How the page looks: the theme's own colours, light or dark; nothing is fetched from elsewhere."""

CSS = """
.cm { color: var(--body-text-color); line-height: 1.45; }
.gradio-container { width: 100%; max-width: 1180px !important; min-width: 0; margin: 0 auto; }
.cm p { margin: .35rem 0; max-width: 90ch; overflow-wrap: anywhere; }
.cm h1 { font-size: 1.9rem; margin: 0 0 .2rem; }
.cm h3 { font-size: 1.1rem; margin: 1.3rem 0 .3rem; }
.cm h4 { font-size: .95rem; margin: 0; }
.cm figure { margin: 0; }
.cm ul { margin: .7rem 0 0; }
.cm img { display: block; width: 100%; height: auto; border-radius: 4px; }
.cm-pixels img { image-rendering: pixelated; }
.cm figcaption { font-size: .8rem; color: var(--body-text-color); opacity: .8; margin-top: .2rem;
  overflow-wrap: anywhere; }
.cm a { color: var(--link-text-color); text-decoration: underline; }
.cm a:focus-visible { outline: 3px solid #0072b2; }
.cm-note, .cm .note { font-size: .85rem; color: var(--body-text-color); opacity: .8; }
.cm-step { font-size: 1rem; font-weight: 600; margin: 0 0 -.5rem !important; }
.cm-verdict { border: 1px solid var(--border-color-primary); border-left: 8px solid #5c6675; border-radius: 8px;
  padding: .8rem 1.1rem; }
.cm-verdict-proved { border-left-color: #00629b; } .cm-verdict-alert { border-left-color: #a84300; }
.cm-label { font-size: 1.7rem; margin-right: .7rem; }
.cm-guarantee { font-size: 1.02rem; }
.cm-badge { display: inline-block; padding: .1rem .55rem; border-radius: 1rem; font-size: .82rem; font-weight: 600;
  color: #fff; background: #5c6675; vertical-align: middle; }
.cm-proved { background: #00629b; } .cm-alert { background: #a84300; } .cm-wrong { background: #b00020; }
.cm-refused { border: 2px solid #b00020; border-radius: 6px; padding: .5rem .8rem; font-weight: 600; }
.cm-pair { display: grid; grid-template-columns: repeat(auto-fill, minmax(max(140px, 30%), 1fr)); gap: .8rem;
  max-width: 960px; margin-top: .5rem; }
.cm-row { display: grid; grid-template-columns: repeat(auto-fill, minmax(max(140px, 22%), 1fr)); gap: .8rem;
  max-width: 960px; margin-top: .5rem; }
.cm-votes { display: grid; grid-template-columns: repeat(auto-fill, minmax(88px, 1fr)); gap: .5rem; }
.cm-vote { border: 3px solid transparent; border-radius: 6px; padding: 2px; }
.cm-dissent { border-color: #d55e00; }
.cm-cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 170px), 1fr)); gap: .7rem;
  margin-top: .8rem; }
.cm-card { border: 1px solid var(--border-color-primary); border-top: 6px solid #5c6675; border-radius: 8px;
  padding: .6rem .8rem; }
.cm-card-proved { border-top-color: #00629b; } .cm-card-alert { border-top-color: #a84300; }
.cm-card-wrong { border-top-color: #b00020; }
.cm-card strong { margin-right: .5rem; font-size: 1.15rem; }
.cm .scroll { overflow-x: auto; }
.cm table { border-collapse: collapse; font-size: .82rem; width: 100%; border: 0 !important; }
.cm thead, .cm tbody, .cm tr { border: 0 !important; }
.cm th, .cm td { padding: .3rem .45rem !important; border: 0 !important; text-align: left;
  border-bottom: 1px solid var(--border-color-primary) !important; }
.cm td.figure, .cm th.figure { text-align: right !important; font-variant-numeric: tabular-nums; }
.cm caption { text-align: left; font-weight: 600; padding-bottom: .3rem; }
.cm td small { display: block; }
#refusal:not(:has(p)) { display: none; }
#place img { max-width: 360px; }
#place [data-listens] img { cursor: crosshair; }
#look, #attack, #votes, #again { max-width: 320px; }
"""
