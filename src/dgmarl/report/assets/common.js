"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const show = (value) => (Math.abs(value) < 0.0005 ? "0" : value.toFixed(Math.abs(value) < 10 ? 3 : 1));

function shape(parent, name, attributes, content) {
  const node = document.createElementNS(SVG, name);
  for (const key in attributes) node.setAttribute(key, attributes[key]);
  if (content !== undefined) node.textContent = content;
  parent.append(node);
  return node;
}

function element(name, content, className) {
  const node = document.createElement(name);
  node.append(...[content].flat());
  if (className) node.className = className;
  return node;
}
