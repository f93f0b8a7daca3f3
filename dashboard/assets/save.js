// Saves charts and their numbers as files, without the server.
(function () {
    "use strict";

    const SCALE = 2; // for printing
    const LEAST_WIDTH = 720; // pixels, so that the legend fits on one line
    const LEGEND_HEIGHT = 34;
    const LINE_HEIGHT = 22;
    const CHARACTER_WIDTH = 8.2; // pixels in the title's font
    const NEWLINE = "\r\n";
    const ARRAYS = { f4: Float32Array, f8: Float64Array, i4: Int32Array, i2: Int16Array };

    // Charts by their names on the page: functions that return their numbers and pictures.
    const charts = new Map();

    // The stem of a file's name: the heading of the page and the title of the chart.
    function fileStem(title) {
        const heading = document.querySelector("#page h1");
        const text = (heading ? heading.textContent + " " : "") + title;
        const safe = text.normalize("NFKD").replace(/[^A-Za-z0-9._]+/g, "-");
        return safe.toLowerCase().replace(/^[-.]+|[-.]+$/g, "").slice(0, 100) || "picture";
    }

    function download(name, blob) {
        const link = document.createElement("a");
        link.href = URL.createObjectURL(blob);
        link.download = name;
        link.click();
        // The browser needs the address until it has read the file.
        setTimeout(() => URL.revokeObjectURL(link.href), 60000);
    }

    function cell(value) {
        if (typeof value === "number") {
            // Integers keep all digits.
            const rounded = Number.isInteger(value) ? value : Number(value.toPrecision(6));
            return Number.isFinite(value) ? String(rounded) : "";
        }
        // Spreadsheets run text that starts like this as a formula.
        const text = /^\s*[=+\-@＝＋－＠]/.test(value) ? "'" + value : value;
        return /[",\r\n]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
    }

    const csv = (rows) => rows.map((row) => row.map(cell).join(",") + NEWLINE).join("");

    // Decodes numbers of a Plotly figure: a list, or bytes in base 64.
    function numbers(encoded) {
        if (!encoded.bdata) {
            return encoded.flat(Infinity);
        }
        return new ARRAYS[encoded.dtype](decodeBase64(encoded.bdata).buffer);
    }

    const decodeBase64 = (text) => Uint8Array.from(atob(text), (one) => one.charCodeAt(0));

    function heatMapCsv(table, data) {
        const map = data[0];
        const [edges, mean, most] = [map.x, map.z, map.customdata].map(numbers);
        const columns = edges.length - 1;
        const rows = [table.head];
        table.rows.forEach(function (row, y) {
            for (let x = 0; x < columns; x++) {
                const at = y * columns + x;
                const measured = Number.isFinite(mean[at]);
                const latest = [0, 1, 2].map((part) => (measured ? most[3 * at + part] : NaN));
                rows.push([...row, edges[x] + 0.5, edges[x + 1] - 0.5, mean[at], ...latest]);
            }
        });
        return csv(rows);
    }

    // --- Images ---

    const escaped = (text) =>
        text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

    function wrapped(text, width) {
        const lines = [""];
        for (const word of text.split(/\s+/)) {
            const last = lines[lines.length - 1];
            if (last && (last.length + word.length + 1) * CHARACTER_WIDTH > width) {
                lines.push(word);
            } else {
                lines[lines.length - 1] = (last + " " + word).trim();
            }
        }
        return lines;
    }

    // The chart as shown, with its zoom, plus title and legend, on the card's background.
    function shownFigure(card, graph) {
        const width = Math.max(graph.clientWidth, LEAST_WIDTH);
        const title = wrapped(card.querySelector("h2").textContent, width - 40);
        const layout = Object.assign({}, graph.layout);
        const above = title.length * LINE_HEIGHT + 12;
        const scale = layout.coloraxis ? 1 : 0;
        const legend = !scale && card.querySelector(".legend") ? LEGEND_HEIGHT : 0;
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
        const figure = shownFigure(card, graph);
        const { width, height } = figure.layout;
        const size = { width: width, height: height, scale: kind === "png" ? SCALE : 1 };
        const address = await window.Plotly.toImage(figure, { format: kind, ...size });
        const content = address.slice(address.indexOf(",") + 1);
        if (kind === "svg") {
            return new Blob([decodeURIComponent(content)], { type: "image/svg+xml" });
        }
        return new Blob([decodeBase64(content)], { type: "image/png" });
    }

    async function save(button) {
        const kind = button.dataset.save;
        const card = button.closest(".chart-card");
        const chart = charts.get(button.dataset.chart);
        const name = fileStem(card.querySelector("h2").textContent) + "." + kind;
        if (kind === "csv") {
            // With a byte order mark, spreadsheets read the file as UTF-8.
            const parts = ["\ufeff", await chart.csv()];
            download(name, new Blob(parts, { type: "text/csv;charset=utf-8" }));
        } else {
            download(name, await chart.picture(card, kind));
        }
    }

    // --- Copying the address of the view ---

    async function copyText(text) {
        if (navigator.clipboard) {
            return navigator.clipboard.writeText(text).then(
                () => true,
                () => false,
            );
        }
        // Browsers offer the clipboard only to pages of this machine and over TLS.
        const field = document.createElement("textarea");
        field.value = text;
        document.body.append(field);
        field.select();
        const done = document.execCommand("copy");
        field.remove();
        return done;
    }

    async function copy(button) {
        const done = await copyText(window.location.href);
        button.focus();
        const label = button.dataset.words || button.textContent;
        button.dataset.words = label;
        button.textContent = done ? "Copied" : "Not copied";
        setTimeout(() => (button.textContent = label), 2000);
    }

    document.addEventListener("click", function (event) {
        const button = event.target.closest("[data-save], [data-copy]");
        if (button) {
            (button.dataset.save ? save : copy)(button);
        }
    });

    window.stallscopeSave = {
        // Registers a chart that Plotly draws, with its CSV, or the heads of a heat map's CSV.
        registerFigure: function (name, table, data) {
            const text = () => (typeof table === "string" ? table : heatMapCsv(table, data));
            charts.set(name, { csv: text, picture: picture });
        },
        register: (name, chart) => charts.set(name, chart),
        csv: csv,
    };
})();
