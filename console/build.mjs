// Builds the console into the directory from which the gateway embeds it. The same sources and
// package-lock.json give the same bytes.
import { build } from "esbuild";
import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2] ?? join(here, "../services/gateway/internal/console/dist");

rmSync(out, { recursive: true, force: true });
mkdirSync(join(out, "assets"), { recursive: true });
const result = await build({
  absWorkingDir: here,
  entryPoints: ["src/main.tsx", "src/app.css"],
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  entryNames: "[name]-[hash]",
  outdir: join(out, "assets"),
  metafile: true,
  legalComments: "eof",
  charset: "utf8",
});
const icon = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="7" fill="#0b5a72"/><path fill="#fff" d="M5 21h22l-3 6H8zM15 5h2v14h-2zM17 7l7 11h-7zM13 9v9H7z"/></svg>
`;
const iconName = `icon-${createHash("sha256").update(icon).digest("hex").slice(0, 8)}.svg`;
writeFileSync(join(out, "assets", iconName), icon);
const files = Object.keys(result.metafile.outputs).map((f) => basename(f));
const named = (prefix, suffix) => files.find((f) => f.startsWith(prefix) && f.endsWith(suffix));
writeFileSync(
  join(out, "index.html"),
  `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Berth</title>
<meta name="berth-base" content="{{base}}">
<link rel="icon" href="{{base}}/assets/${iconName}" type="image/svg+xml">
<link rel="preload" href="{{base}}/v1/caller" as="fetch" crossorigin>
<link rel="stylesheet" href="{{base}}/assets/${named("app-", ".css")}">
<script type="module" src="{{base}}/assets/${named("main-", ".js")}"></script>
</head>
<body>
<div id="app"><p class="loading start">Loading…</p></div>
<noscript>The console needs JavaScript. The command line shows the same: berth top, berth get, berth describe.</noscript>
</body>
</html>
`,
);

// The licenses of the packages whose code the page contains.
const packages = new Set(
  Object.keys(result.metafile.inputs).map((f) => /^node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(f)?.[1]).filter(Boolean),
);
writeFileSync(
  join(here, "LICENSES"),
  [...packages]
    .sort()
    .map((name) => {
      const dir = join(here, "node_modules", name);
      const { version, license } = JSON.parse(readFileSync(join(dir, "package.json"), "utf8"));
      const file = readdirSync(dir).find((f) => /^licen[cs]e/i.test(f));
      if (license !== "MIT" || !file) throw new Error(`${name}: the license ${license} needs a decision`);
      return `${name} ${version}\n\n${readFileSync(join(dir, file), "utf8").trim()}\n`;
    })
    .join("\n"),
);
