// Pictures and their numbers as files, made here: nothing is asked of anybody.
(function () {
    "use strict";

    const SCALE = 2; // so that a picture can be printed
    const NARROWEST = 720; // what is named beside each other keeps to one line
    const LEGEND = 34;
    const LINE = 22;
    const CHARACTER = 8.2; // pixels, of the title's font
    const NEWLINE = "\r\n";
    const ARRAYS = { f4: Float32Array, f8: Float64Array, i4: Int32Array, i2: Int16Array };

    // What is drawn, by its name on the page: how its numbers and its picture are had.
    const known = new Map();

    // The beginning of a file's name: the run or page, and what is shown of it.
    function named(title) {
        const heading = document.querySelector("#page h1");
        const words = (heading ? heading.textContent + " " : "") + title;
        const safe = words.normalize("NFKD").replace(/[^A-Za-z0-9._]+/g, "-");
        return safe.toLowerCase().replace(/^[-.]+|[-.]+$/g, "").slice(0, 100) || "picture";
    }

    function offer(name, blob) {
        const link = document.createElement("a");
        link.href = URL.createObjectURL(blob);
        link.download = name;
        link.click();
        // The browser still reads it.
        setTimeout(() => URL.revokeObjectURL(link.href), 60000);
    }

    function cell(value) {
        if (typeof value === "number") {
            // Of whole numbers no digit is lost.
            const whole = Number.isInteger(value) ? value : Number(value.toPrecision(6));
            return Number.isFinite(value) ? String(whole) : "";
        }
        // Spreadsheets run what begins like this.
        const text = /^\s*[=+\-@＝＋－＠]/.test(value) ? "'" + value : value;
        return /[",\r\n]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
    }

    const csv = (rows) => rows.map((row) => row.map(cell).join(",") + NEWLINE).join("");

    // Numbers as Plotly gets them: a list, or bytes in base 64.
    function numbers(given) {
        if (!given.bdata) {
            return given.flat(Infinity);
        }
        const bytes = Uint8Array.from(atob(given.bdata), (one) => one.charCodeAt(0));
        return new ARRAYS[given.dtype](bytes.buffer);
    }

    function ofHeatMap(table, data) {
        const map = data[0];
        const [edges, mean, most] = [map.x, map.z, map.customdata].map(numbers);
        const columns = edges.length - 1;
        const rows = [table.head];
        table.rows.forEach(function (row, y) {
            for (let x = 0; x < columns; x++) {
                const at = y * columns + x;
                const there = Number.isFinite(mean[at]);
                const latest = [0, 1, 2].map((part) => (there ? most[3 * at + part] : NaN));
                rows.push([...row, edges[x] + 0.5, edges[x + 1] - 0.5, mean[at], ...latest]);
            }
        });
        return csv(rows);
    }

    // --- Pictures ---

    const escaped = (text) =>
        text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

    function wrapped(text, width) {
        const lines = [""];
        for (const word of text.split(/\s+/)) {
            const last = lines[lines.length - 1];
            if (last && (last.length + word.length + 1) * CHARACTER > width) {
                lines.push(word);
            } else {
                lines[lines.length - 1] = (last + " " + word).trim();
            }
        }
        return lines;
    }

    // The picture as it is seen, zoomed or not, with its title and colours by name, on the card's ground.
    function seen(card, graph) {
        const width = Math.max(graph.clientWidth, NARROWEST);
        const title = wrapped(card.querySelector("h2").textContent, width - 40);
        const layout = Object.assign({}, graph.layout);
        const above = title.length * LINE + 12;
        const scale = layout.coloraxis ? 1 : 0;
        const legend = !scale && card.querySelector(".legend") ? LEGEND : 0;
        const margin = Object.assign({}, layout.margin);
        margin.t = (margin.t || 0) + above + legend;
        margin.r = (margin.r || 0) + 70 * scale;
        if (scale) {
            const bar = Object.assign({}, layout.coloraxis.colorbar, { x: 1, xpad: 44, len: 1 });
            layout.coloraxis = Object.assign({}, layout.coloraxis, { showscale: true, colorbar: bar });
        }
        Object.assign(layout, {
            autosize: false,
            width: width,
            height: graph.clientHeight + above + legend,
            margin: margin,
            showlegend: legend > 0,
            paper_bgcolor: getComputedStyle(card).backgroundColor,
            title: {
                text: title.map(escaped).join("<br>"),
                x: 0,
                xanchor: "left",
                xref: "container",
                y: 1,
                yref: "container",
                yanchor: "top",
                pad: { t: 10, l: 12 },
                font: { size: 16 },
            },
        });
        return { data: graph.data, layout: layout, config: { staticPlot: true } };
    }

    async function picture(card, kind) {
        const graph = card.querySelector(".js-plotly-plot");
        const figure = seen(card, graph);
        const { width, height } = figure.layout;
        const size = { width: width, height: height, scale: kind === "png" ? SCALE : 1 };
        const address = await window.Plotly.toImage(figure, { format: kind, ...size });
        const content = address.slice(address.indexOf(",") + 1);
        if (kind === "svg") {
            return new Blob([decodeURIComponent(content)], { type: "image/svg+xml" });
        }
        const bytes = Uint8Array.from(atob(content), (one) => one.charCodeAt(0));
        return new Blob([bytes], { type: "image/png" });
    }

    async function save(button) {
        const kind = button.dataset.save;
        const card = button.closest(".chart-card");
        const drawn = known.get(button.dataset.chart);
        const name = named(card.querySelector("h2").textContent) + "." + kind;
        if (kind === "csv") {
            // With a mark in front spreadsheets take it for what it is: UTF-8.
            const parts = ["\ufeff", await drawn.csv()];
            offer(name, new Blob(parts, { type: "text/csv;charset=utf-8" }));
        } else {
            offer(name, await drawn.picture(card, kind));
        }
    }

    // --- The address of what is looked at ---

    async function copied(text) {
        if (navigator.clipboard) {
            return navigator.clipboard.writeText(text).then(
                () => true,
                () => false,
            );
        }
        // Only pages of this machine and those over TLS get the clipboard itself.
        const field = document.createElement("textarea");
        field.value = text;
        document.body.append(field);
        field.select();
        const done = document.execCommand("copy");
        field.remove();
        return done;
    }

    async function copy(button) {
        const done = await copied(window.location.href);
        button.focus();
        const before = button.dataset.words || button.textContent;
        button.dataset.words = before;
        button.textContent = done ? "Copied" : "Not copied";
        setTimeout(() => (button.textContent = before), 2000);
    }

    document.addEventListener("click", function (event) {
        const button = event.target.closest("[data-save], [data-copy]");
        if (button) {
            (button.dataset.save ? save : copy)(button);
        }
    });

    window.stallscopeSave = {
        // Of what Plotly draws: its numbers as text, or what makes them of the data.
        knows: function (name, table, data) {
            const text = () => (typeof table === "string" ? table : ofHeatMap(table, data));
            known.set(name, { csv: text, picture: picture });
        },
        drawnBy: (name, drawn) => known.set(name, drawn),
        csv: csv,
    };
})();
