// Compresses ui/dist into crates/dashboard/assets and collects the licences of the npm packages in it.
// Usage: node pack.mjs [--check]; with --check, compares the content with the existing files instead.
import { readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gunzipSync, gzipSync } from "node:zlib";

const here = dirname(fileURLToPath(import.meta.url));
const dist = join(here, "dist");
const target = join(here, "..", "assets");
const licensesFile = join(here, "THIRD_PARTY_LICENSES");
const isCheck = process.argv.includes("--check");

/** Files of the build by their names below `/dashboard/assets/`. */
function built() {
  const assets = readdirSync(join(dist, "assets")).map((name) => join(dist, "assets", name));
  return new Map([join(dist, "index.html"), ...assets].map((path) => [basename(path), readFileSync(path)]));
}

/** Returns the licence file of a package. */
function licenseText(dir) {
  const name = readdirSync(dir).find((file) => /^licen[cs]e/i.test(file));
  if (!name) throw new Error(`${dir} has no licence file`);
  return readFileSync(join(dir, name), "utf8").split(/\r?\n/).map((line) => line.trimEnd()).join("\n").trim();
}

function licenses() {
  const names = JSON.parse(readFileSync(join(dist, "packages.json"), "utf8"));
  const sections = names.map((name) => {
    const dir = join(here, "node_modules", name);
    const { version, license } = JSON.parse(readFileSync(join(dir, "package.json"), "utf8"));
    if (!["MIT", "ISC", "Apache-2.0", "BSD-3-Clause", "BSD-2-Clause"].includes(license)) throw new Error(`${name} is under ${license}`);
    return { title: `${name} ${version}  ${license}`, text: licenseText(dir) };
  });
  return sections.map(({ title, text }) => `${title}\n\n${text}\n`).join("\n");
}

const files = built();
const packed = readdirSync(target).filter((name) => name.endsWith(".gz"));
if (isCheck) {
  const differing = [...new Set([...files.keys(), ...packed.map((name) => name.slice(0, -3))])].filter((name) => {
    const content = files.get(name);
    return !content || !packed.includes(`${name}.gz`) || !gunzipSync(readFileSync(join(target, `${name}.gz`))).equals(content);
  });
  if (readFileSync(licensesFile, "utf8") !== licenses()) differing.push("THIRD_PARTY_LICENSES");
  if (differing.length > 0) {
    console.error(`outdated: ${differing.join(", ")}; run \`cargo xtask dashboard\``);
    process.exit(1);
  }
} else {
  for (const name of packed) rmSync(join(target, name));
  for (const [name, content] of files) writeFileSync(join(target, `${name}.gz`), gzipSync(content, { level: 9 }));
  writeFileSync(licensesFile, licenses());
}
