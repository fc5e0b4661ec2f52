// A document for libraries that create style elements, which the Content-Security-Policy blocks.

/**
 * Returns the document with one difference: the rules of created style elements and attributes go into adopted style
 * sheets and properties, which scripts may change without `unsafe-inline`.
 */
export function documentWithoutStyles(): Document {
  return new Proxy(document, {
    get(target, key) {
      if (key === "createElement") return createWithoutStyles;
      const value: unknown = Reflect.get(target, key, target);
      return typeof value === "function" ? (value as (...values: unknown[]) => unknown).bind(target) : value;
    },
  });
}

/** Runs a function during which the document itself creates no style elements, for code that takes no other document. */
export function runWithoutStyles(run: () => void): void {
  document.createElement = createWithoutStyles;
  try {
    run();
  } finally {
    // The method of the prototype is visible again.
    delete (document as { createElement?: unknown }).createElement;
  }
}

const create = Document.prototype.createElement;

function createWithoutStyles(name: string, options?: ElementCreationOptions): HTMLElement {
  return name === "style" ? styleElement() : withoutStyleAttribute(create.call(document, name, options));
}

/** Makes an element set its style by properties instead of the attribute, which the policy blocks as well. */
function withoutStyleAttribute(element: HTMLElement): HTMLElement {
  const setAttribute = element.setAttribute.bind(element);
  element.setAttribute = (name, value) => {
    if (name === "style") element.style.cssText = value;
    else setAttribute(name, value);
  };
  return element;
}

/** Returns an element whose text is an adopted style sheet while it is part of the document. */
function styleElement(): HTMLElement {
  const sheet = new CSSStyleSheet();
  const element = create.call(document, "span");
  element.hidden = true;
  const adopt = () => {
    if (!document.adoptedStyleSheets.includes(sheet)) document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
  };
  const remove = element.remove.bind(element);
  let content = "";
  Object.defineProperties(element, {
    textContent: {
      get: () => content,
      set: (text: string) => {
        content = text;
        sheet.replaceSync(text);
        adopt();
      },
    },
    sheet: { get: () => sheet },
    remove: {
      value: () => {
        document.adoptedStyleSheets = document.adoptedStyleSheets.filter((other) => other !== sheet);
        remove();
      },
    },
  });
  return element;
}
