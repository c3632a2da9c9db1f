// The one place where the template language meets preact.
import htm from "htm";
import { h } from "preact";

export const html = htm.bind(h);
