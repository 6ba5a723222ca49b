// Search reads the index when the reader enters the field. It has no request to another host.
(() => {
  const base = document.currentScript.src.replace(/[^/]*$/, "");
  const box = document.querySelector(".search");
  const field = box.querySelector("input");
  const results = box.querySelector(".results");
  box.hidden = false;

  let loading;
  const load = () => loading ??= new Promise((resolve, reject) => {
    const index = document.createElement("script");
    index.src = base + "search-index.js";
    index.onload = () => resolve(pages);
    index.onerror = reject;
    document.head.append(index);
  });

  // A page matches if it contains every word. A word in the title counts most,
  // then the words in this order.
  const score = (page, words) => {
    const title = page.title.toLowerCase(), text = page.lower ??= page.text.toLowerCase();
    let sum = 0;
    for (const word of words) {
      const inTitle = title.includes(word), inText = text.split(word).length - 1;
      if (!inTitle && !inText) return 0;
      sum += (inTitle ? 100 : 0) + Math.min(inText, 20) + (page.url.includes("/adr/") || page.url === "CHANGELOG.html" ? 0 : 5);
    }
    return sum + (text.includes(words.join(" ")) ? 50 : 0);
  };

  const show = async () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = words.length === 0 ? [] : (await load())
      .map(page => ({page, score: score(page, words)})).filter(r => r.score > 0)
      .sort((a, b) => b.score - a.score).slice(0, 12);
    results.replaceChildren(...found.map(({page}) => {
      const item = document.createElement("li"), link = document.createElement("a"), text = document.createElement("span");
      const at = Math.max(0, page.lower.indexOf(words[0]) - 40);
      link.href = base + page.url;
      link.textContent = page.title;
      text.textContent = "…" + page.text.slice(at, at + 120).replace(/\s+/g, " ") + "…";
      link.append(text);
      item.append(link);
      return item;
    }));
    if (words.length > 0 && found.length === 0) {
      const item = document.createElement("li");
      item.textContent = "No page has these words.";
      results.append(item);
    }
    results.hidden = words.length === 0;
  };

  field.addEventListener("focus", load);
  field.addEventListener("input", show);
  document.addEventListener("keydown", event => {
    if (event.key === "/" && document.activeElement !== field) {
      event.preventDefault();
      field.focus();
    } else if (event.key === "Escape") {
      field.value = "";
      results.hidden = true;
      field.blur();
    } else if (event.key === "Enter" && document.activeElement === field) {
      results.querySelector("a")?.click();
    }
  });
  document.addEventListener("click", event => {
    if (!box.contains(event.target)) results.hidden = true;
  });
})();
