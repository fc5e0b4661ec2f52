// Builds the user interface into ui/dist. `cargo xtask dashboard` compresses the result into crates/dashboard/assets.
import { defineConfig } from "vite";

/** Writes the names of the npm packages whose code is part of the result. */
function listPackages() {
  return {
    name: "list-packages",
    generateBundle(_options, bundle) {
      const files = Object.values(bundle).flatMap((chunk) => (chunk.type === "chunk" ? Object.keys(chunk.modules) : chunk.originalFileNames));
      const names = files.flatMap((file) => /.*node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(file)?.[1] ?? []);
      // Style sheets are not among the modules of chunks.
      names.push("@xterm/xterm");
      this.emitFile({ type: "asset", fileName: "packages.json", source: JSON.stringify([...new Set(names)].sort()) });
    },
  };
}

export default defineConfig({
  base: "/dashboard/",
  publicDir: false,
  plugins: [listPackages()],
  esbuild: { jsx: "automatic", jsxImportSource: "preact", legalComments: "none" },
  build: {
    target: "es2022",
    // Browsers that the dashboard supports preload modules themselves.
    modulePreload: { polyfill: false },
    // Inlined assets would be data URLs, which the Content-Security-Policy refuses for everything but images.
    assetsInlineLimit: 0,
    cssCodeSplit: true,
    rollupOptions: {
      output: {
        // Names without hashes: each file is revalidated by its ETag, and a change is one file in a commit.
        entryFileNames: "assets/[name].js",
        chunkFileNames: "assets/[name].js",
        assetFileNames: "assets/[name][extname]",
      },
    },
  },
});
