// Messages in the chosen language.

import { type Signal, signal } from "@preact/signals";

import { type MessageKey, type Messages, en } from "./en";
import { ko } from "./ko";

export type { MessageKey } from "./en";

export const LANGUAGES = { en: "English", ko: "한국어" } as const;
export type Language = keyof typeof LANGUAGES;

const MESSAGES: Record<Language, Messages> = { en, ko };
const STORED = "knarr.language";

function initial(): Language {
  const stored = localStorage.getItem(STORED);
  if (stored === "en" || stored === "ko") return stored;
  return navigator.languages.some((language) => language.startsWith("ko")) ? "ko" : "en";
}

export const language: Signal<Language> = signal(initial());

language.subscribe((chosen) => {
  document.documentElement.lang = chosen;
});

export function chooseLanguage(chosen: Language): void {
  localStorage.setItem(STORED, chosen);
  language.value = chosen;
}

/** Returns a message with its placeholders filled. */
export function t(key: MessageKey, values: Record<string, string | number> = {}): string {
  return MESSAGES[language.value][key].replace(/\{(\w+)\}/g, (whole, name: string) => String(values[name] ?? whole));
}
