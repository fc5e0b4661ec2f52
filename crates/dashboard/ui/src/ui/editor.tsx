// The YAML editor. In its shadow root, CodeMirror uses adopted style sheets instead of style elements.

import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { yaml } from "@codemirror/lang-yaml";
import { HighlightStyle, bracketMatching, foldGutter, indentOnInput, syntaxHighlighting } from "@codemirror/language";
import { Compartment, EditorState } from "@codemirror/state";
import { EditorView, drawSelection, highlightActiveLine, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { useEffect, useRef } from "preact/hooks";

/** Colours are variables of the page, so that the editor follows the theme. */
const THEME = EditorView.theme({
  "&": { color: "var(--text)", backgroundColor: "var(--surface)", fontSize: "13px", height: "100%" },
  "&.cm-focused": { outline: "2px solid var(--accent)", outlineOffset: "-2px" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.55" },
  ".cm-gutters": { backgroundColor: "var(--sunken)", color: "var(--quiet)", border: "none" },
  ".cm-activeLine": { backgroundColor: "color-mix(in srgb, var(--accent) 7%, transparent)" },
  ".cm-activeLineGutter": { backgroundColor: "transparent" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "color-mix(in srgb, var(--accent) 30%, transparent)" },
});

const COLOURS = HighlightStyle.define([
  { tag: [tags.propertyName, tags.definition(tags.propertyName)], color: "var(--code-key)" },
  { tag: [tags.string, tags.content], color: "var(--text)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--code-value)" },
  { tag: tags.comment, color: "var(--quiet)", fontStyle: "italic" },
  { tag: [tags.punctuation, tags.separator], color: "var(--quiet)" },
]);

/**
 * Replaces a selection itself. Browsers keep the style of replaced text in style attributes, which the
 * Content-Security-Policy blocks.
 */
const REPLACE_SELECTION = EditorView.domEventHandlers({
  beforeinput(event, view) {
    const isReplacement = event.inputType === "insertText" && event.data !== null && !view.composing && !view.state.selection.main.empty;
    if (!isReplacement || view.state.readOnly) return false;
    event.preventDefault();
    view.dispatch(view.state.replaceSelection(event.data!), { userEvent: "input.type", scrollIntoView: true });
    return true;
  },
});

interface Props {
  value: string;
  label: string;
  readOnly: boolean;
  onChange?: (value: string) => void;
}

export function Editor({ value, label, readOnly, onChange }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView>();
  const mode = useRef(new Compartment());
  const changed = useRef(onChange);
  changed.current = onChange;
  const modeOf = (isReadOnly: boolean) => [
    EditorState.readOnly.of(isReadOnly),
    EditorView.contentAttributes.of({ tabindex: "0", "aria-label": label, "aria-readonly": String(isReadOnly) }),
  ];
  useEffect(() => {
    const root = box.current!.shadowRoot ?? box.current!.attachShadow({ mode: "open" });
    const editor = new EditorView({
      root,
      parent: root,
      state: EditorState.create({
        doc: value,
        extensions: [
          lineNumbers(), foldGutter(), history(), drawSelection(), indentOnInput(), bracketMatching(), highlightActiveLine(),
          yaml(), syntaxHighlighting(COLOURS), THEME, REPLACE_SELECTION,
          // Tab moves the focus in an object that is only shown.
          keymap.of([...defaultKeymap, ...historyKeymap, ...(readOnly ? [] : [indentWithTab])]),
          mode.current.of(modeOf(readOnly)),
          EditorView.updateListener.of((update) => {
            if (update.docChanged) changed.current?.(update.state.doc.toString());
          }),
        ],
      }),
    });
    view.current = editor;
    return () => editor.destroy();
  }, [readOnly]);
  useEffect(() => {
    const editor = view.current;
    if (editor && editor.state.doc.toString() !== value) editor.dispatch({ changes: { from: 0, to: editor.state.doc.length, insert: value } });
  }, [value, readOnly]);
  return <div class="editor" ref={box} />;
}
