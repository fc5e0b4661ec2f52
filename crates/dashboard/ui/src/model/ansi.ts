// Log lines with ANSI escape codes. Only colours and weights are interpreted; every other control is removed, so that a
// container cannot move, hide or overwrite text of other lines.

export interface Span {
  text: string;
  /** CSS classes: `fg-1`, `bg-4`, `bold`. */
  classes: string[];
}

interface Style {
  foreground: number;
  background: number;
  bold: boolean;
  dim: boolean;
  italic: boolean;
  underline: boolean;
}

const PLAIN: Style = { foreground: -1, background: -1, bold: false, dim: false, italic: false, underline: false };

/** CSI sequences, OSC and other strings with their terminator, two-character escapes. */
const ESCAPE = /\u001b\[([0-?]*)[ -/]*([@-~])|\u009b([0-?]*)[ -/]*([@-~])|\u001b[\]PX^_][^\u0007\u001b\u009c]*(?:\u0007|\u001b\\|\u009c|$)|\u001b[ -/]*[0-~]|\u001b/g;
/** Controls other than tab, and characters that change the direction or are invisible. */
const CONTROL = /[\u0000-\u0008\u000a-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;
/** The longest line that is shown. */
export const LINE_MAX = 10_000;

/** Returns a line as spans of one style each. */
export function parseAnsi(line: string): Span[] {
  const input = line.length > LINE_MAX ? `${line.slice(0, LINE_MAX)}…` : line;
  const spans: Span[] = [];
  let style = PLAIN;
  let end = 0;
  const add = (text: string) => {
    const clean = text.replace(CONTROL, "");
    if (clean === "") return;
    spans.push({ text: clean, classes: classes(style) });
  };
  for (const match of input.matchAll(ESCAPE)) {
    add(input.slice(end, match.index));
    end = match.index + match[0].length;
    const [parameters, final] = [match[1] ?? match[3], match[2] ?? match[4]];
    if (final === "m") style = applyCodes(style, parameters ?? "");
  }
  add(input.slice(end));
  return spans;
}

/** Returns the text of a line without escape codes. */
export function plainText(line: string): string {
  return parseAnsi(line).map((span) => span.text).join("");
}

function applyCodes(style: Style, parameters: string): Style {
  const codes = parameters.split(/[;:]/).map((code) => (code === "" ? 0 : Number(code)));
  let next = { ...style };
  for (let index = 0; index < codes.length; index += 1) {
    const code = codes[index]!;
    if (code === 0) next = { ...PLAIN };
    else if (code === 1) next.bold = true;
    else if (code === 2) next.dim = true;
    else if (code === 3) next.italic = true;
    else if (code === 4) next.underline = true;
    else if (code === 22) next.bold = next.dim = false;
    else if (code === 23) next.italic = false;
    else if (code === 24) next.underline = false;
    else if (code >= 30 && code <= 37) next.foreground = code - 30;
    else if (code === 39) next.foreground = -1;
    else if (code >= 40 && code <= 47) next.background = code - 40;
    else if (code === 49) next.background = -1;
    else if (code >= 90 && code <= 97) next.foreground = code - 82;
    else if (code >= 100 && code <= 107) next.background = code - 92;
    else if (code === 38 || code === 48) {
      // Of the extended colours, the first sixteen of the palette are shown.
      const colour = codes[index + 1] === 5 ? (codes[index + 2] ?? -1) : -1;
      index += codes[index + 1] === 5 ? 2 : codes[index + 1] === 2 ? 4 : 0;
      const shown = colour >= 0 && colour < 16 ? colour : -1;
      if (code === 38) next.foreground = shown;
      else next.background = shown;
    }
  }
  return next;
}

function classes(style: Style): string[] {
  const found: string[] = [];
  if (style.foreground >= 0) found.push(`fg-${style.foreground}`);
  if (style.background >= 0) found.push(`bg-${style.background}`);
  for (const name of ["bold", "dim", "italic", "underline"] as const) if (style[name]) found.push(name);
  return found;
}
