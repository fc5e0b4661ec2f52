import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

import { en } from "../../src/i18n/en";
import { ko } from "../../src/i18n/ko";

const placeholders = (text: string) => [...text.matchAll(/\{\w+\}/g)].map(([name]) => name).sort();

test("every message is used", () => {
  const files = readdirSync("src", { recursive: true, encoding: "utf8" }).filter((name) => /\.tsx?$/.test(name) && !name.startsWith("i18n"));
  const source = files.map((name) => readFileSync(join("src", name), "utf8")).join("\n");
  const prefixes = [...source.matchAll(/`(\w+\.(?:\w+\.)?)\$\{/g)].map((match) => match[1]!);
  const isUsed = (key: string) => source.includes(`"${key}"`) || prefixes.some((prefix) => key.startsWith(prefix));
  assert.ok(files.length > 20);
  assert.deepEqual(Object.keys(en).filter((key) => !isUsed(key)), []);
});

test("Korean messages are translated and have the same placeholders", () => {
  const same = ["Knarr", "Kubeconfig", "CPU", "YAML", "kubelet", "+{time}", "{n}×"];
  for (const [key, text] of Object.entries(en)) {
    const translated = ko[key as keyof typeof en];
    assert.deepEqual(placeholders(translated), placeholders(text), key);
    assert.ok(/[가-힣]/.test(translated) || same.some((it) => it === translated) || !/[A-Za-z]/.test(translated.replace(/\{\w+\}/g, "")), `${key}: ${translated}`);
  }
});
