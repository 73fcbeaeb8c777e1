"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const show = (value) => (Math.abs(value) < 0.0005 ? "0" : value.toFixed(Math.abs(value) < 10 ? 3 : 1));

/* An SVG element, the last of `parent` unless that is null. */
function shape(parent, name, attributes, content) {
  const node = document.createElementNS(SVG, name);
  for (const key in attributes) node.setAttribute(key, attributes[key]);
  if (content !== undefined) node.textContent = content;
  parent?.append(node);
  return node;
}

function element(name, content, className) {
  const node = document.createElement(name);
  node.append(...[content].flat());
  if (className) node.className = className;
  return node;
}

function swatch(colour) {
  const node = element("span", "", "swatch");
  node.style.background = colour;
  return node;
}

function ticks(low, high) {
  const raw = (high - low) / 5, size = 10 ** Math.floor(Math.log10(raw));
  const step = size * [1, 2, 5, 10].reduce((a, b) => (Math.abs(b * size - raw) < Math.abs(a * size - raw) ? b : a));
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) found.push(k * step);
  return found;
}

const count = (value) => (Math.abs(value) >= 1e6 ? `${+(value / 1e6).toPrecision(4)}M` : Math.abs(value) >= 1e4 ? `${+(value / 1e3).toPrecision(4)}k` : String(+value.toPrecision(4)));
